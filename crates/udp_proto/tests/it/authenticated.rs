//! A client with a token and the right keys can harm only its own session.

use core::time::Duration;

use udp_proto::fragment::FRAGMENT_LEN;
use udp_proto::handshake::params::Params;
use udp_proto::{CloseCode, CloseReason, Config, Credentials, Event};
use wire::Seed;

use crate::direct::{CLIENT, Line, Party, Sent};
use crate::harness::{RELIABLE, address};
use crate::rogue::{Rogue, RogueSession, confirm, confirm_with};

/// A server and a hand-written client.
pub(crate) struct Scenario {
    pub(crate) line: Line,
    pub(crate) session: RogueSession,
    credentials: Credentials,
}

impl Scenario {
    /// After the ACCEPT, before the first packet.
    fn half_open(number: u64) -> Self {
        Self::half_open_with(number, Config::default())
    }

    fn half_open_with(number: u64, config: Config) -> Self {
        let mut line = Line::with(number, config, |listen| listen);
        let credentials = line.token(1);
        let mut rogue = Rogue::new(number, &credentials);
        line.server.take(line.now, address(CLIENT), &rogue.hello);
        let accept = line.server.drain(line.now).remove(0).bytes;
        let session = rogue.accept(&accept);
        Self {
            line,
            session,
            credentials,
        }
    }

    fn open(number: u64) -> Self {
        Self::open_with(number, Config::default())
    }

    pub(crate) fn open_with(number: u64, config: Config) -> Self {
        let mut scenario = Self::half_open_with(number, config);
        let first = confirm(&Config::default());
        scenario.send_plaintext(&first);
        assert_eq!(scenario.server().sessions().len(), 1);
        scenario
    }

    pub(crate) fn server(&self) -> &Party {
        &self.line.server
    }

    /// Sends a packet with this plaintext; returns the plaintexts of the answers.
    pub(crate) fn send_plaintext(&mut self, plaintext: &[u8]) -> Vec<Vec<u8>> {
        let packet = self.session.packet(plaintext);
        let now = self.line.now;
        self.line.server.take(now, address(CLIENT), &packet);
        let sent = self.line.server.drain(now);
        sent.iter()
            .map(|Sent { bytes, .. }| self.session.open(bytes).expect("sealed for us"))
            .collect()
    }

    /// The code of the only `Closed` event at the server.
    pub(crate) fn end(&self) -> Option<CloseReason> {
        let closes = self.server().closes();
        assert!(closes.len() <= 1);
        closes.first().copied()
    }
}

/// A MSG frame with a length: channel, number, data.
pub(crate) fn message(channel: u8, id: u16, data: &[u8]) -> Vec<u8> {
    let mut frame = vec![0xA0 | channel];
    if channel != 0 {
        frame.extend_from_slice(&id.to_be_bytes());
    }
    frame.extend_from_slice(&varint(data.len()));
    frame.extend_from_slice(data);
    frame
}

pub(crate) fn fragment(channel: u8, id: u16, (index, count): (u16, u16), data: &[u8]) -> Vec<u8> {
    let mut frame = vec![0xE0 | channel];
    for number in [id, index, count] {
        frame.extend_from_slice(&number.to_be_bytes());
    }
    frame.extend_from_slice(&varint(data.len()));
    frame.extend_from_slice(data);
    frame
}

fn varint(len: usize) -> Vec<u8> {
    let low = u8::try_from(len % 128).unwrap();
    match len / 128 {
        0 => vec![low],
        high => vec![low | 0x80, u8::try_from(high).unwrap()],
    }
}

/// 350 empty messages fill a packet.
#[test]
fn a_packet_with_too_many_messages_or_frames_ends_the_session() {
    let messages = |count: usize| message(0, 0, &[]).repeat(count);
    let pings = |count: usize| vec![0x01; count];
    for (plaintext, taken, is_breach) in [
        (messages(30), 30, false),
        ([messages(30), pings(16)].concat(), 30, false),
        (messages(31), 0, true),
        (messages(350), 0, true),
        ([pings(17), messages(1)].concat(), 0, true),
        (pings(1_100), 0, true),
        ([vec![0x00; 1_000], messages(30)].concat(), 30, false),
    ] {
        let mut scenario = Scenario::open(2);
        scenario.send_plaintext(&plaintext);
        let expected = is_breach.then_some(CloseReason::Local(CloseCode::Frame));
        assert_eq!(scenario.end(), expected, "{} bytes", plaintext.len());
        assert_eq!(scenario.server().messages.len(), taken);
    }
}

/// The inbound limit counts frames, so it bounds what a hostile session costs.
///
/// Prints the share of a core that the server uses, including what it keeps to deliver; no
/// assertion depends on the time.
#[test]
#[expect(clippy::disallowed_methods, reason = "the real time it takes is shown")]
#[expect(clippy::print_stdout, reason = "a goal's figure is shown")]
fn inbound_frames_bounds_the_cost_of_packets_of_empty_messages() {
    let mut config = Config::for_server();
    let limit = usize::try_from(config.inbound.frames).unwrap();
    assert_eq!(limit, 6_000);
    config.block_breaches = None;
    let mut scenario = Scenario::open_with(3, config);
    let full = message(0, 0, &[]).repeat(30);
    let mut packets = 0_u64;
    let mut spent = Duration::ZERO;
    for _ in 0..5_000 {
        // 1,000 packets per second, each as full as possible.
        scenario.line.now += Duration::from_millis(1);
        let packet = scenario.session.packet(&full);
        let now = scenario.line.now;
        let start = std::time::Instant::now();
        scenario.line.server.take(now, address(CLIENT), &packet);
        scenario.line.server.drain(now);
        scenario.line.server.wake(now);
        spent += start.elapsed();
        packets += 1;
    }
    // Of 5 s.
    let share = spent.as_secs_f64() / 5.0 * 100.0;
    println!(
        "32 sessions of 30,000 empty messages a second: {:.1} % of a core",
        share * 32.0
    );
    let taken = scenario.server().messages.len();
    // A burst of half a second, and five seconds at the limit.
    assert!(taken <= limit / 2 + 5 * limit, "{taken} messages");
    assert!(taken >= 5 * limit, "{taken} messages");
    let stats = scenario.server().machine.stats();
    assert_eq!(scenario.end(), None);
    assert!(stats.dropped_over_limit > 3_500, "{stats:?}");
    assert!(stats.packets + stats.dropped_over_limit >= packets);
}

#[test]
fn a_hand_written_client_connects_and_sends() {
    let mut scenario = Scenario::open(1);
    scenario.send_plaintext(&message(1, 0, b"by hand"));
    let [(channel, text)] = &scenario.server().messages[..] else {
        panic!("one message");
    };
    assert_eq!((channel.0, text.as_slice()), (1, &b"by hand"[..]));
}

/// Padding is allowed anywhere; a frame behind it is parsed as usual.
#[test]
fn a_message_after_padding_is_accepted_and_an_invalid_one_closes() {
    let mut scenario = Scenario::open(1);
    let ping = [0, 1, 0, 0];
    scenario.send_plaintext(
        &[
            &[0, 0][..],
            &message(1, 0, b"one"),
            &ping,
            &message(1, 1, b"two"),
        ]
        .concat(),
    );
    let messages = [b"one", b"two"].map(|data| (RELIABLE, data.to_vec()));
    assert_eq!(scenario.server().messages, messages);
    let fragment = fragment(1, 2, (2, 2), &[5; FRAGMENT_LEN]);
    scenario.send_plaintext(&[&[0, 0, 0][..], &fragment].concat());
    assert_eq!(
        scenario.end(),
        Some(CloseReason::Local(CloseCode::Fragment))
    );
}

#[test]
fn nothing_is_delivered_or_acknowledged_before_confirm() {
    let mut scenario = Scenario::half_open(2);
    assert!(
        scenario
            .send_plaintext(&message(1, 0, b"too soon"))
            .is_empty()
    );
    assert!(scenario.send_plaintext(&[0x01]).is_empty());
    // A CONFIRM behind an unreadable frame does not count.
    let garbled = [&[0x10][..], &confirm(&Config::default())].concat();
    assert!(scenario.send_plaintext(&garbled).is_empty());
    assert_eq!(scenario.server().machine.stats().dropped_unconfirmed, 3);
    assert!(scenario.server().events.is_empty() && scenario.server().messages.is_empty());
    let answers = scenario.send_plaintext(&confirm(&Config::default()));
    assert_eq!(scenario.server().sessions().len(), 1);
    assert_eq!(answers.len(), 1);
    assert!(scenario.server().messages.is_empty(), "it was not kept");
}

/// A CLOSE with valid keys ends the attempt at once: its slot is freed, no session is reported or
/// replaced, and the token may start another attempt.
#[test]
fn a_close_before_or_with_confirm_ends_the_attempt() {
    let close = [0x04, 0, 0, 0];
    for first in [
        close.to_vec(),
        [&confirm(&Config::default())[..], &close].concat(),
    ] {
        let mut scenario = Scenario::half_open(8);
        assert!(scenario.send_plaintext(&first).is_empty());
        assert_eq!(scenario.server().machine.session_count(), 0);
        assert!(scenario.server().events.is_empty());
        for number in 30..34 {
            let rogue = Rogue::new(number, &scenario.credentials);
            let now = scenario.line.now;
            scenario
                .line
                .server
                .take(now, address(CLIENT), &rogue.hello);
            assert_eq!(scenario.line.server.drain(now)[0].bytes[0], 0xC3);
        }
    }
}

/// A first packet with a violation behind its CONFIRM replaces no older session.
#[test]
fn a_first_packet_with_a_violation_replaces_no_session() {
    let mut line = Line::new(9);
    let (_, theirs) = line.join(1);
    line.now += Duration::from_millis(10);
    let credentials = line.token(1);
    let mut rogue = Rogue::new(9, &credentials);
    let from = address("203.0.113.77:1");
    line.server.take(line.now, from, &rogue.hello);
    let accept = line.server.drain(line.now).remove(0).bytes;
    let breach = [&confirm(&Config::default())[..], &message(1, 2_000, b"x")].concat();
    let packet = rogue.accept(&accept).packet(&breach);
    line.server.take(line.now, from, &packet);
    line.run(2_000);
    assert_eq!(line.server.closes(), [CloseReason::Local(CloseCode::Flow)]);
    assert_eq!(line.server.machine.sessions().collect::<Vec<_>>(), [theirs]);
}

/// The text of the peer's CLOSE is reported after the messages before it.
#[test]
fn the_text_of_a_close_and_preceding_messages_are_delivered() {
    let mut scenario = Scenario::open(10);
    scenario.line.server.events.clear();
    let close = [&[0x04, 0, 1, 5][..], b"later"].concat();
    scenario.send_plaintext(&[message(1, 0, b"last words"), close].concat());
    let server = scenario.server();
    assert_eq!(server.messages.len(), 1);
    let [Event::Closed { reason, text, .. }] = &server.events[..] else {
        panic!("{:?}", server.events);
    };
    assert_eq!(*reason, CloseReason::Peer(CloseCode::App));
    assert_eq!(&text[..], b"later");
}

#[test]
fn wrong_channels_or_parameters_end_the_attempt_and_not_the_token() {
    let mut params = Params::of(&Config::default(), [0; 7]).encode();
    params[16] = 1;
    let mut digest = confirm(&Config::default());
    *digest.last_mut().unwrap() ^= 1;
    let firsts = [
        (digest, CloseCode::ChannelConfig),
        (confirm_with(&Config::default(), &params), CloseCode::Params),
    ];
    for (first, code) in firsts {
        let mut scenario = Scenario::half_open(3);
        let answers = scenario.send_plaintext(&first);
        let [0x04, high, low, ..] = answers[0][..] else {
            panic!("a CLOSE: {answers:?}");
        };
        assert_eq!(u16::from_be_bytes([high, low]), code.to_wire());
        assert!(
            scenario.server().events.is_empty(),
            "it never was a session"
        );
        // The token's owner retries correctly.
        let mut rogue = Rogue::new(4, &scenario.credentials);
        let now = scenario.line.now;
        scenario
            .line
            .server
            .take(now, address(CLIENT), &rogue.hello);
        let sent = scenario.line.server.drain(now);
        let accept = sent.iter().find(|sent| sent.bytes[0] == 0xC3).unwrap();
        scenario.session = rogue.accept(&accept.bytes);
        scenario.send_plaintext(&confirm(&Config::default()));
        assert_eq!(scenario.server().sessions().len(), 1);
    }
}

#[test]
fn each_protocol_violation_ends_the_session_with_its_code() {
    let ack = |largest: u16| {
        let [high, low] = largest.to_be_bytes();
        vec![0x02, high, low, 0xFF, 0xFF, 0, 0]
    };
    let full = [7; 1_120];
    let breaches: [(&str, Vec<Vec<u8>>, CloseCode); 13] = [
        ("reserved type", vec![vec![0x10]], CloseCode::Frame),
        ("unknown type", vec![vec![0x2F]], CloseCode::Frame),
        ("cut short", vec![vec![0x08, 1, 2, 3]], CloseCode::Frame),
        (
            "no such channel",
            vec![message(9, 0, b"x")],
            CloseCode::Frame,
        ),
        (
            "length not minimal",
            vec![vec![0xA0, 0x81, 0x00, 1]],
            CloseCode::Frame,
        ),
        ("never sent", vec![ack(900)], CloseCode::AckUnsent),
        (
            "two ACKs in a packet",
            vec![[ack(0), ack(0)].concat()],
            CloseCode::Frame,
        ),
        (
            "one fragment",
            vec![fragment(1, 0, (0, 1), b"x")],
            CloseCode::Fragment,
        ),
        (
            "index beyond count",
            vec![fragment(1, 0, (2, 2), b"x")],
            CloseCode::Fragment,
        ),
        (
            "short in the middle",
            vec![fragment(1, 0, (0, 2), b"x")],
            CloseCode::Fragment,
        ),
        (
            "counts that differ",
            vec![fragment(1, 0, (0, 3), &full), fragment(1, 0, (1, 4), &full)],
            CloseCode::Fragment,
        ),
        (
            "a number far ahead",
            vec![message(1, 1_024, b"x")],
            CloseCode::Flow,
        ),
        (
            "longer than the channel",
            (0..60)
                .map(|index| fragment(1, 0, (index, 60), &full))
                .collect(),
            CloseCode::Fragment,
        ),
    ];
    for (name, plaintexts, code) in breaches {
        let mut scenario = Scenario::open(5);
        for plaintext in plaintexts {
            scenario.send_plaintext(&plaintext);
        }
        assert_eq!(scenario.end(), Some(CloseReason::Local(code)), "{name}");
    }
}

/// Reliable bytes beyond the window, all behind a gap, so that none can be read.
#[test]
fn sending_beyond_the_window_ends_the_session_and_memory_stays_below_it() {
    let mut scenario = Scenario::open(6);
    let before = scenario.server().machine.memory();
    let window = usize::try_from(Config::default().receive_window).unwrap();
    let mut sent = 0;
    for id in 1..1_024 {
        for index in 0..2 {
            scenario.send_plaintext(&fragment(1, id, (index, 3), &[7; 1_120]));
            sent += 1_120;
            let held = scenario.server().machine.memory() - before;
            assert!(held <= window + (window >> 1), "{held} of {window}");
        }
        if scenario.end().is_some() {
            break;
        }
    }
    assert_eq!(scenario.end(), Some(CloseReason::Local(CloseCode::Flow)));
    assert!(sent > window, "{sent}");
}

#[test]
fn unreliable_fragments_hold_a_bounded_memory() {
    let mut scenario = Scenario::open(7);
    let before = scenario.server().machine.memory();
    for id in 0..2_000 {
        scenario.send_plaintext(&fragment(0, id, (0, 16), &[7; 1_120]));
        scenario.line.now += Duration::from_millis(1);
        let held = scenario.server().machine.memory() - before;
        assert!(held <= 160 << 10, "{held}");
    }
    assert_eq!(scenario.end(), None);
}

/// Random plaintext in valid packets: each is accepted or ends the session.
#[test]
fn sim_any_plaintext_is_accepted_or_ends_the_session() {
    netsim::for_each_seed(&netsim::test_site!(), 60, |seed: Seed| {
        let mut generator = seed.generator(3);
        let mut scenario = Scenario::open(generator.below(u64::MAX));
        for _ in 0..200 {
            let mut plaintext = Vec::new();
            for _ in 0..generator.between(1, 6) {
                plaintext.extend_from_slice(&some_frame(&mut generator));
            }
            plaintext.truncate(1_170);
            scenario.send_plaintext(&plaintext);
            let server = scenario.server();
            assert!(server.machine.memory() < 4 << 20);
            if scenario.end().is_some() {
                break;
            }
            scenario.line.now += Duration::from_micros(generator.below(5_000));
            scenario.line.server.wake(scenario.line.now);
        }
        // At the end all sessions are closed, and the server accepts new ones.
        scenario.line.run(13_000);
        let connected = |event: &Event| matches!(event, Event::Connected { .. });
        assert_eq!(scenario.server().events.len(), 2);
        assert!(connected(&scenario.server().events[0]));
        assert_eq!(scenario.server().machine.session_count(), 0);
        scenario.line.join(2);
    });
}

/// Mostly well-formed, with numbers near limits.
fn some_frame(generator: &mut wire::Generator) -> Vec<u8> {
    let odd = [
        0, 1, 2, 63, 64, 127, 128, 1_023, 1_024, 32_767, 32_768, 65_534, 65_535,
    ];
    let mut number = || {
        let index = usize::try_from(generator.below(20)).unwrap();
        odd.get(index)
            .copied()
            .unwrap_or_else(|| u16::try_from(index).unwrap())
    };
    let (a, b, c, d) = (number(), number(), number(), number());
    let data = vec![1; usize::from(d % 1_100)];
    match generator.below(40) {
        0 => vec![u8::try_from(a & 0xFF).unwrap(); 9],
        1..=6 => fragment(u8::try_from(a % 2).unwrap(), a, (b % 20, c % 20), &data),
        7..=12 => fragment(1, 0, (b % 3, 4), &[1; 1_120]),
        13..=22 => message(u8::try_from(a % 2).unwrap(), b % 40, &data),
        23 => {
            let mut ack = vec![0x02];
            for value in [a % 16, b] {
                ack.extend_from_slice(&value.to_be_bytes());
            }
            ack.extend_from_slice(&varint(usize::from(c % 1_024)));
            ack.push(u8::try_from(d % 4).unwrap());
            ack.extend_from_slice(&vec![0x55; usize::from(d % 4)]);
            ack
        }
        24 => [&[0x07][..], &[0xFF; 6]].concat(),
        25 => confirm(&Config::default()),
        26 => [&[0x05][..], &[1; 8]].concat(),
        27 => [&[0x06][..], &[1; 8]].concat(),
        28 => [&[0x09][..], &[1; 4]].concat(),
        29 => vec![0x0A; 130],
        _ => vec![0x01, 0x00, 0x00],
    }
}

/// A4: a peer that acknowledges packets it did not receive hits a skipped number.
#[test]
fn twp_a4_an_optimistic_acker_is_caught_within_2_048_packets() {
    for number in 20..30 {
        let mut scenario = Scenario::open(number);
        let theirs = scenario.server().sessions()[0];
        let mut sent = 0;
        let mut newest = vec![0, 0];
        while scenario.end().is_none() {
            let now = scenario.line.now;
            scenario
                .line
                .server
                .machine
                .send(now, theirs, crate::harness::UNRELIABLE, &[1; 600])
                .unwrap();
            let packets = scenario.line.server.drain(now);
            sent += packets.len();
            let Some(last) = packets.last() else {
                // An honest ACK validates the address.
                scenario.send_plaintext(&[&[0x02][..], &newest, &[0xFF, 0xFF, 0, 0]].concat());
                scenario.line.now += Duration::from_millis(1);
                continue;
            };
            let last = &last.bytes;
            newest = last[5..7].to_vec();
            // The newest and 30 below it, received or not.
            let ack = [&[0x02][..], &last[5..7], &[0xFF, 0xFF, 30, 0]].concat();
            if sent > 40 && sent % 20 == 0 {
                scenario.send_plaintext(&ack);
            }
            scenario.line.now += Duration::from_millis(1);
            assert!(sent <= 2_048, "not caught");
        }
        assert_eq!(
            scenario.end(),
            Some(CloseReason::Local(CloseCode::AckUnsent))
        );
    }
}
