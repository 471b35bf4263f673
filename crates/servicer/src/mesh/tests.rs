use std::net::UdpSocket as Plain;
use std::time::{Duration, Instant};

use super::*;

/// Interprets a program as the kernel does.
fn run(program: &[Step], datagram: &[u8]) -> Option<u32> {
    let (mut at, mut byte) = (0, 0);
    for _ in 0..=program.len() {
        let step = program.get(at)?;
        at += 1;
        let jump = |is_true: bool| usize::from(if is_true { step.if_true } else { step.if_false });
        match step.code {
            LOAD_BYTE => match datagram.get(usize::try_from(step.operand).unwrap()) {
                Some(loaded) => byte = u32::from(*loaded),
                // Linux, Documentation/networking/filter.rst: out-of-bounds loads return 0.
                None => return Some(0),
            },
            JUMP_IF_EQUAL => at += jump(byte == step.operand),
            JUMP_IF_AT_LEAST => at += jump(byte >= step.operand),
            SHIFT_RIGHT => byte >>= step.operand,
            RETURN => return Some(step.operand),
            RETURN_BYTE => return Some(byte),
            other => panic!("{other:#x}"),
        }
    }
    None
}

/// Datagrams with every first byte and a label of `shard`.
fn datagrams(shard: u8) -> impl Iterator<Item = Vec<u8>> {
    (0..=255_u8).map(move |first| {
        let at = if first == 0x82 { 7 } else { 4 };
        let mut datagram = vec![0x5A; 60];
        datagram[0] = first;
        datagram[at] = (shard << 5) | 0x1F;
        datagram
    })
}

#[test]
fn the_filter_agrees_with_the_mesh_and_stays_below_the_shard_count() {
    for count in 1..=ShardId::COUNT_MAX {
        let program = program(NonZeroU8::new(count).unwrap());
        for datagram in (0..8).flat_map(datagrams) {
            let shard = ShardId::of_datagram(&datagram).place();
            let expected = if shard < count { shard } else { 0 };
            assert_eq!(run(&program, &datagram), Some(expected.into()));
        }
        for len in 0..8 {
            // Too short for the label.
            assert_eq!(run(&program, &vec![0x82; len]), Some(0));
            assert_eq!(run(&program, &vec![0x81; len.min(4)]), Some(0));
        }
    }
}

#[test]
#[cfg(all(target_os = "linux", has_linux_calls))]
fn the_system_steers_each_datagram_to_the_socket_of_its_shard() {
    let any = "127.0.0.1:0".parse().unwrap();
    for address in [any, "[::1]:0".parse().unwrap()] {
        let count = NonZeroU8::new(3).unwrap();
        let Ok(sockets) = bind_shards(address, &SocketConfig::default(), count) else {
            // The host has no IPv6.
            assert_ne!(address, any);
            continue;
        };
        let to = sockets[0].local_address();
        let plain = Plain::bind(SocketAddr::new(to.ip(), 0)).unwrap();
        let mut expected = [0_usize; 3];
        for datagram in (0..4).flat_map(datagrams) {
            let shard = usize::from(ShardId::of_datagram(&datagram).place());
            let shard = if shard < 3 { shard } else { 0 };
            expected[shard] += 1;
            plain.send_to(&datagram, to).unwrap();
            let mut buf = [0; 100];
            let (len, _) = wait(|| sockets[shard].io.recv_from(&mut buf));
            assert_eq!(&buf[..len], datagram, "{shard}");
        }
        assert_eq!(expected, [1_018, 3, 3]);
    }
}

/// A relay on `[::]` also receives IPv4, steered to the right shards.
#[test]
#[cfg(all(target_os = "linux", has_linux_calls))]
fn u1_the_system_divides_what_a_dual_port_receives_over_ipv4() {
    let config = SocketConfig {
        stack: Stack::Dual,
        ..SocketConfig::default()
    };
    let count = NonZeroU8::new(3).unwrap();
    let Ok(sockets) = bind_shards("[::]:0".parse().unwrap(), &config, count) else {
        // The host has no IPv6.
        return;
    };
    let port = sockets[0].local_address().port();
    for ip in ["127.0.0.1", "::1"] {
        let to = SocketAddr::new(ip.parse().unwrap(), port);
        assert!(sockets.iter().all(|socket| socket.reaches(to)));
        let plain = Plain::bind(SocketAddr::new(to.ip(), 0)).unwrap();
        for datagram in (0..4).flat_map(datagrams) {
            let shard = usize::from(ShardId::of_datagram(&datagram).place());
            let shard = if shard < 3 { shard } else { 0 };
            plain.send_to(&datagram, to).unwrap();
            let mut buf = [0; 100];
            let (len, _) = wait(|| sockets[shard].io.recv_from(&mut buf));
            assert_eq!(&buf[..len], datagram, "{ip} {shard}");
        }
    }
}

/// Retries a nonblocking receive for up to 1 s.
#[cfg(all(target_os = "linux", has_linux_calls))]
#[expect(clippy::disallowed_methods, reason = "real sockets")]
fn wait<T>(mut receive: impl FnMut() -> std::io::Result<T>) -> T {
    let end = Instant::now() + Duration::from_secs(1);
    loop {
        match receive() {
            Ok(got) => return got,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
    }
}

#[test]
fn one_socket_binds_exclusively_and_more_than_eight_are_refused() {
    let any = "127.0.0.1:0".parse().unwrap();
    let bind = |address, count| {
        bind_shards(
            address,
            &SocketConfig::default(),
            NonZeroU8::new(count).unwrap(),
        )
    };
    let alone = bind(any, 1).unwrap();
    assert_eq!(alone.len(), 1);
    let busy = bind(alone[0].local_address(), 2).unwrap_err();
    assert_eq!(busy.cause, BindCause::Busy);
    #[cfg(all(target_os = "linux", has_linux_calls))]
    {
        let several = bind(any, 2).unwrap();
        let busy = bind(several[0].local_address(), 2).unwrap_err();
        assert_eq!(busy.cause, BindCause::Busy, "two nodes at one port");
    }
    assert_eq!(bind(any, 9).unwrap_err().cause, BindCause::NotShared);
}

#[test]
fn an_upstream_socket_has_the_family_of_its_server() {
    let bound = |server: &str, upstream: Option<&str>| {
        let command = Command::Open {
            server: server.parse().unwrap(),
        };
        match order(&command, upstream.map(|ip| ip.parse().unwrap())) {
            Some(SocketOrder::Open { address, .. }) => address.to_string(),
            order => panic!("a socket is to be opened, not {order:?}"),
        }
    };
    assert_eq!(bound("192.0.2.1:9", None), "0.0.0.0:0");
    assert_eq!(bound("[2001:db8::1]:9", None), "[::]:0");
    assert_eq!(bound("127.0.0.1:9", Some("127.0.0.7")), "127.0.0.7:0");
    assert_eq!(bound("[::1]:9", Some("127.0.0.7")), "[::]:0");
}

#[test]
fn a_game_port_receives_both_families_if_configured() {
    for (is_dual, stack) in [(true, Stack::Dual), (false, Stack::Single)] {
        let address = "[::]:7".parse().unwrap();
        match order(&Command::Listen { address, is_dual }, None) {
            Some(SocketOrder::Open { config, .. }) => assert_eq!(config.stack, stack),
            order => panic!("a socket is to be opened, not {order:?}"),
        }
    }
}

#[test]
fn a_received_datagram_names_its_socket() {
    let address: SocketAddr = "192.0.2.1:9".parse().unwrap();
    let peer_addr = PeerAddr::from_wire(SocketIndex(0), address);
    assert_eq!(peer_addr, PeerAddr::mesh(address));
    let peer_addr = PeerAddr::from_wire(SocketIndex(70_000), address);
    assert_eq!(peer_addr.socket(), Some(SocketIndex(70_000)));
}
