//! Tunnels against an end that violates the protocol.

use core::time::Duration;

use crypto::tls::TlsIdentity;
use crypto::{Identity, Ring};
use quinn_proto::StreamId;
use wire::Instant;

use super::event::ConnEnd;
use super::quic::Written;
use super::*;

/// An entry and an exit, connected without delay.
struct Couple {
    now: Instant,
    entry: Tunnel,
    exit: Tunnel,
}

#[expect(
    clippy::disallowed_methods,
    reason = "the standard library's time has no number; only differences to this one count"
)]
fn couple() -> Couple {
    let mut provider = Ring::new();
    let [one, other] = [(); 2].map(|()| {
        let identity = Identity::generate(&mut provider).unwrap();
        TlsIdentity::new(&identity).unwrap()
    });
    let config = TunnelConfig::default();
    let now = Instant::ZERO;
    let times = (std::time::Instant::now(), now);
    let entry = Tunnel::entry((1, &config), &one, other.node_id(), times).unwrap();
    let exit = Tunnel::exit((1, &config), &other, one.node_id(), times).unwrap();
    let mut couple = Couple { now, entry, exit };
    couple.run(Duration::ZERO);
    assert_eq!(couple.entry.state, TunnelState::Established);
    couple
}

impl Couple {
    fn run(&mut self, span: Duration) {
        let until = self.now + span;
        loop {
            self.exchange();
            let due = [&self.entry, &self.exit].map(Tunnel::poll_timeout);
            let next = due.into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= until) else {
                break;
            };
            self.now = next;
            self.entry.handle_timeout(next);
            self.exit.handle_timeout(next);
        }
        self.now = until;
    }

    fn exchange(&mut self) {
        loop {
            let mut is_over = true;
            let mut datagram = Vec::new();
            while self.entry.poll_transmit(self.now, &mut datagram).is_some() {
                self.exit.handle_datagram(self.now, &datagram);
                datagram.clear();
                is_over = false;
            }
            while self.exit.poll_transmit(self.now, &mut datagram).is_some() {
                self.entry.handle_datagram(self.now, &datagram);
                datagram.clear();
                is_over = false;
            }
            if is_over {
                return;
            }
        }
    }

    /// Opens a stream at the entry's QUIC connection, bypassing the tunnel.
    fn raw(&mut self, bytes: &[u8]) -> StreamId {
        let stream = self.entry.quic.open().unwrap();
        self.write(stream, bytes);
        stream
    }

    fn write(&mut self, stream: StreamId, bytes: &[u8]) {
        let written = self.entry.quic.write(stream, bytes);
        assert_eq!(written, Written::Taken(bytes.len()));
        self.exchange();
    }

    fn events(&mut self) -> Vec<TunnelEvent> {
        core::iter::from_fn(|| self.exit.poll_event()).collect()
    }
}

fn bytes_of(player: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let player = player.parse().unwrap();
    let game = "web".into();
    let listen = player;
    OpenRecord {
        game,
        player,
        listen,
    }
    .encode(&mut bytes);
    bytes
}

#[test]
fn mesh_a1_a_stream_that_begins_with_no_record_is_refused_alone() {
    let mut couple = couple();
    couple.events();
    let mut other_version = bytes_of("192.0.2.1:1");
    other_version[1] = 2;
    let mut trailing = bytes_of("192.0.2.1:1");
    trailing[0] += 1;
    trailing.push(0);
    for bytes in [
        &[0][..],
        &[105],
        &[255; 300],
        &[1, 1],
        &other_version,
        &trailing,
    ] {
        let stream = couple.raw(bytes);
        couple.exchange();
        let code = couple.entry.quic.reset_code(stream);
        assert_eq!(code, Some(Refusal::Malformed.code().into()), "{bytes:?}");
        assert_eq!(couple.events(), []);
    }
    let ended = couple.raw(&[30, 1]);
    couple.entry.quic.finish(ended);
    couple.exchange();
    assert_eq!(couple.exit.stats.malformed, 7);
    assert!(couple.exit.is_empty() && couple.exit.state == TunnelState::Established);
}

#[test]
fn mesh_a1_a_record_that_dribbles_is_waited_for_for_10_s() {
    let mut couple = couple();
    couple.events();
    let bytes = bytes_of("192.0.2.1:1");
    let stream = couple.raw(&bytes[..1]);
    for byte in &bytes[1..10] {
        couple.run(Duration::from_secs(1));
        couple.write(stream, &[*byte]);
        assert_eq!(couple.exit.len(), 1);
    }
    couple.run(Duration::from_millis(1_100));
    assert!(couple.exit.is_empty());
    assert_eq!(couple.exit.stats.unanswered, 1);
    assert_eq!(couple.events(), [], "the driver never heard of it");

    let stream = couple.raw(&bytes[..20]);
    couple.run(Duration::from_secs(9));
    couple.write(stream, &bytes[20..]);
    couple.run(Duration::from_secs(5));
    assert!(matches!(&couple.events()[..], [TunnelEvent::Asked { .. }]));
}

#[test]
fn mesh_a1_streams_without_a_record_are_bounded_and_do_not_stay() {
    let mut couple = couple();
    let mut streams = Vec::new();
    while let Some(stream) = couple.entry.quic.open() {
        couple.write(stream, &[30]);
        streams.push(stream);
    }
    // Another seventh waits for a slot.
    assert_eq!(streams.len(), 1_024 + 147);
    assert_eq!(couple.exit.len(), 1_024);
    couple.run(Duration::from_secs(11));
    assert_eq!(couple.exit.len(), 147);
    couple.run(Duration::from_secs(10));
    assert!(couple.exit.is_empty() && couple.exit.deadlines.is_empty());
    assert!(couple.exit.by_stream.is_empty());
    assert!(
        couple.entry.quic.open().is_none(),
        "they are the entry's to end"
    );
    for stream in streams {
        couple.entry.quic.reset(stream, RESET);
    }
    couple.exchange();
    couple.raw(&bytes_of("192.0.2.1:1"));
    let is_asked = |event: &TunnelEvent| matches!(event, TunnelEvent::Asked { .. });
    assert!(couple.events().iter().any(is_asked), "there is room again");
}

#[test]
fn mesh_a1_streams_that_wait_for_a_place_are_over_with_their_tunnel() {
    for is_lost in [false, true] {
        let mut couple = couple();
        for _ in 0..1_024 {
            couple.raw(&[30]);
        }
        for _ in 0..100 {
            couple.raw(&bytes_of("192.0.2.1:1"));
        }
        assert_eq!(couple.exit.len(), 1_024);
        couple.events();
        if is_lost {
            couple.entry.close(couple.now);
        } else {
            couple.exit.close(couple.now);
        }
        couple.run(Duration::from_secs(20));
        assert!(couple.exit.is_empty() && couple.exit.state != TunnelState::Established);
        let asked = couple.events();
        let asked = asked
            .iter()
            .filter(|event| matches!(event, TunnelEvent::Asked { .. }));
        assert_eq!(asked.count(), 0);
    }
}

#[test]
fn mesh_a1_an_exit_opens_no_stream_and_answers_with_one_byte_alone() {
    let mut couple = couple();
    assert!(couple.exit.quic.open().is_none());
    let open = OpenRecord {
        game: "web".into(),
        player: "192.0.2.1:1".parse().unwrap(),
        listen: "192.0.2.2:2".parse().unwrap(),
    };
    let conn = couple.entry.open(couple.now, &open).unwrap();
    couple.exchange();
    let stream = *couple.exit.by_stream.keys().next().unwrap();
    couple.exit.quic.write(stream, &[2]);
    couple.exchange();
    let end = ConnEnd::Refused(Refusal::Malformed);
    let events: Vec<_> = core::iter::from_fn(|| couple.entry.poll_event()).collect();
    assert!(
        events.contains(&TunnelEvent::Ended { conn, end }),
        "{events:?}"
    );
}
