//! Each choice of [`Config`] and [`Target`]: its effect, and which peers it rejects.

use crypto::{PublicKey, Suite};
use netsim::provider::SimProvider;
use udp_proto::codec::Catalogue;
use udp_proto::{
    ChannelConfig, ChannelId, ChannelTable, CidLen, CloseCode, CloseReason, Config, ConnectError,
    ConnectFailure, DuplicatePolicy, Event, Mtu, Proof, RetryPolicy, SendError, ServerIdentity,
    Target,
};
use wire::Seed;

use crate::direct::{CLIENT, Line, Party, config, failures, network, target};
use crate::harness::{Keys, RELIABLE, UNRELIABLE};
use crate::rogue::Rogue;

#[test]
fn retry_always_requires_a_cookie_with_tokens_too() {
    let always = config(|config| config.retry = RetryPolicy::Always);
    let mut line = Line::with(6, always, |listen| listen);
    line.join(1);
    let stats = *line.server.machine.stats();
    assert_eq!((stats.retried, stats.accepted), (1, 1));
}

#[test]
fn duplicate_reject_keeps_the_existing_session() {
    let reject = config(|config| config.duplicate = DuplicatePolicy::Reject);
    let mut line = Line::with(7, reject, |listen| listen);
    let (session, _) = line.join(1);
    line.run(1_000);
    let credentials = line.token(1);
    line.client.dial(line.now, &line.keys, credentials);
    line.run(500);
    assert_eq!(
        failures(&line.client),
        [ConnectFailure::Refused(CloseCode::Replaced)]
    );
    assert!(line.client.machine.session_stats(session).is_some());
}

#[test]
fn up_to_four_server_keys_are_accepted_and_other_lists_refused() {
    let mut line = Line::new(24);
    let others: Vec<_> = (0..4)
        .map(|number| Keys::new(Seed::from_number(500 + number)).public())
        .collect();
    let right = line.keys.public();
    let mut connect = |keys: &[PublicKey]| {
        let credentials = line.token(1);
        let target = Target {
            server: ServerIdentity::Keys(keys.to_vec()),
            ..target(&line, credentials)
        };
        let result = line.client.machine.connect(line.now, target);
        line.run(100);
        result.map(|session| line.client.machine.proof(session).cloned())
    };
    for place in 0..4 {
        let mut keys = others.clone();
        keys[place] = right;
        assert_eq!(connect(&keys), Ok(Some(Proof::Server(right))), "{place}");
    }
    assert_eq!(connect(&others), Ok(None));
    assert_eq!(connect(&[]), Err(ConnectError::ServerKeys(0)));
    let five = [&others[..], &[right]].concat();
    assert_eq!(connect(&five), Err(ConnectError::ServerKeys(5)));
    let twice = [right, others[0], right];
    assert_eq!(connect(&twice), Err(ConnectError::ServerKeyRepeated));
}

#[test]
fn addresses_are_canonical_and_unusable_ones_are_refused() {
    let mut line = Line::new(25);
    let credentials = line.token(1);
    let address = |text: &str| text.parse::<core::net::SocketAddr>().unwrap();
    let mut settled = target(&line, credentials);
    settled.addresses = vec![
        address("[::ffff:192.0.2.1]:7"),
        address("0.0.0.0:7"),
        address("[2001:db8::1%4]:7"),
        address("255.255.255.255:7"),
    ];
    settled.settle_addresses().unwrap();
    let expected = vec![address("192.0.2.1:7"), address("[2001:db8::1]:7")];
    assert_eq!(settled.addresses, expected);
    let credentials = line.token(1);
    let expired = Target {
        addresses: vec![address("192.0.2.1:0"), address("[ff02::1]:7")],
        ..target(&line, credentials)
    };
    let refused = line.client.machine.connect(line.now, expired).unwrap_err();
    let text = "nothing can answer from 192.0.2.1:0: port 0 is no port of a server";
    assert_eq!(refused.to_string(), text);
    // No state is kept, and nothing was sent.
    assert_eq!(line.client.machine.poll_timeout(), None);
}

#[test]
fn suite_is_chosen_if_offered() {
    for (number, suite) in [Suite::Aes128Gcm, Suite::Aes256Gcm, Suite::ChaCha20Poly1305]
        .into_iter()
        .enumerate()
    {
        let number = 14 + u64::try_from(number).unwrap();
        let mut line = Line::with(number, config(|config| config.suite = suite), |listen| {
            listen
        });
        let (session, _) = line.join(1);
        let accept = line.record.iter().find(|(_, bytes)| bytes[0] == 0xC3);
        assert_eq!(accept.unwrap().1[13], suite.code());
        line.client
            .machine
            .send(line.now, session, RELIABLE, b"sealed")
            .unwrap();
        line.run(100);
        assert_eq!(line.server.messages, [(RELIABLE, b"sealed".to_vec())]);
        // A client that offers only the first gets the first.
        let token = line.token(2);
        let rogue = Rogue::new(1, &token);
        line.server.take(line.now, network(1), &rogue.hello);
        assert_eq!(line.server.drain(line.now)[0].bytes[13], 1);
    }
}

#[test]
fn cid_len_is_the_length_in_packets() {
    for (number, cid_len) in [CidLen::Zero, CidLen::Four, CidLen::Eight]
        .into_iter()
        .enumerate()
    {
        let number = 17 + u64::try_from(number).unwrap();
        let mut line = Line::with(number, Config::default(), |listen| listen);
        let client = config(|config| config.cid_len = cid_len);
        line.client = Party::new(CLIENT, client, SimProvider::new(Seed::from_number(number)));
        let (session, theirs) = line.join(1);
        line.run(100);
        line.server
            .machine
            .send(line.now, theirs, UNRELIABLE, &[1; 50])
            .unwrap();
        line.run(10);
        let longest = line
            .record
            .iter()
            .filter(|(is_client, bytes)| !is_client && bytes[0] & 0xC0 == 0x40)
            .map(|(_, bytes)| bytes.len())
            .max();
        // Flags, connection id, number, message type, data, tag; everything was acknowledged.
        let expected = 1 + cid_len.bytes() + 2 + 1 + 50 + 16;
        assert_eq!(longest, Some(expected));
        assert_eq!(line.client.messages, [(UNRELIABLE, vec![1; 50])]);
        let credentials = line.token(2);
        let second = target(&line, credentials);
        let again = line.client.machine.connect(line.now, second);
        if cid_len == CidLen::Zero {
            assert_eq!(again, Err(ConnectError::AddressTaken));
        } else {
            assert!(again.is_ok());
        }
        assert!(line.client.machine.session_stats(session).is_some());
    }
}

#[test]
fn mtu_and_mtu_check_bound_sent_datagrams() {
    let large = config(|config| {
        config.mtu = Mtu::MIN;
        config.mtu_check = Some(Mtu::MAX);
    });
    let mut line = Line::with(20, large, |listen| listen);
    let (session, _) = line.join(1);
    line.run(1_000);
    let is_checked =
        |event: &Event| matches!(event, Event::MtuChecked { mtu, .. } if *mtu == Some(Mtu::MAX));
    assert!(line.client.events.iter().any(is_checked));
    let before = line.record.len();
    for _ in 0..60 {
        line.client
            .machine
            .send(line.now, session, UNRELIABLE, &[1; 100])
            .unwrap();
    }
    line.run(100);
    let longest = line.record[before..].iter().map(|(_, b)| b.len()).max();
    assert!(
        longest > Some(1_300) && longest <= Some(1_452),
        "{longest:?}"
    );
}

#[test]
fn channels_must_be_the_same_at_both_ends() {
    let three = ChannelTable::new(&[
        ChannelConfig::unreliable(),
        ChannelConfig::reliable_ordered(),
        ChannelConfig::reliable_ordered(),
    ])
    .unwrap();
    let mut line = Line::with(21, config(|config| config.channels = three), |listen| {
        listen
    });
    let (session, _) = line.join(1);
    let third = ChannelId(2);
    line.client
        .machine
        .send(line.now, session, third, b"third")
        .unwrap();
    line.run(100);
    assert_eq!(line.server.messages, [(third, b"third".to_vec())]);
    assert_eq!(
        line.client
            .machine
            .send(line.now, session, ChannelId(3), b"x"),
        Err(SendError::UnknownChannel(ChannelId(3)))
    );
    // A client with the default two gets the reason for the rejection.
    let provider = SimProvider::new(Seed::from_number(22));
    line.client = Party::new("203.0.113.10:4000", Config::default(), provider);
    let credentials = line.token(2);
    line.client.dial(line.now, &line.keys, credentials);
    line.run(500);
    assert_eq!(
        line.client.closes(),
        [CloseReason::Peer(CloseCode::ChannelConfig)]
    );
    assert_eq!(line.server.sessions().len(), 1);
}

#[test]
fn u22_message_types_versions_and_codec_must_be_the_same_at_both_ends() {
    let catalogue = |codec, types: &[(u16, u16)]| {
        let messages = Catalogue::new(codec, &types.iter().copied().collect());
        config(|config| config.messages = messages)
    };
    let types = [(1, 1), (700, 4)];
    let mut line = Line::with(24, catalogue(0, &types), |listen| listen);
    line.join(1);
    let others = [
        ("no types", Config::default()),
        ("another codec", catalogue(1, &types)),
        ("another version", catalogue(0, &[(1, 1), (700, 5)])),
        ("a type more", catalogue(0, &[(1, 1), (2, 1), (700, 4)])),
        ("a type less", catalogue(0, &types[..1])),
    ];
    for (number, (what, other)) in (2..).zip(others) {
        let provider = SimProvider::new(Seed::from_number(number));
        let address = format!("203.0.113.10:{}", 4_000 + number);
        line.client = Party::new(&address, other, provider);
        let credentials = line.token(number);
        line.client.dial(line.now, &line.keys, credentials);
        line.run(500);
        assert_eq!(
            line.client.closes(),
            [CloseReason::Peer(CloseCode::ChannelConfig)],
            "{what}"
        );
    }
    assert_eq!(line.server.sessions().len(), 1);
}

/// Without connection ids, packets are matched by address, so one address has one session.
#[test]
fn cid_len_0_allows_one_session_or_dial_per_address() {
    let none = config(|config| config.cid_len = CidLen::Zero);
    let mut line = Line::with(23, Config::default(), |listen| listen);
    line.client = Party::new(CLIENT, none, SimProvider::new(Seed::from_number(23)));
    let credentials = line.token(1);
    let session = line.client.dial(line.now, &line.keys, credentials);
    let credentials = line.token(2);
    let second = target(&line, credentials);
    let again = line.client.machine.connect(line.now, second);
    assert_eq!(again, Err(ConnectError::AddressTaken));
    line.settle();
    assert_eq!(line.client.sessions(), [session]);
}
