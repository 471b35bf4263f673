//! Packets from senders without keys: forged, modified and random.

use core::net::SocketAddr;
use core::time::Duration;

use udp_proto::{Listen, SessionId};
use wire::{Generator, Instant, Seed};

use crate::direct::{CLIENT, Line, Party};
use crate::harness::{RELIABLE, SERVER, UNRELIABLE, address};

/// Address `number` of those that neither end knows.
pub(crate) fn unknown_address(number: u32) -> SocketAddr {
    let [_, a, b, c] = number.to_be_bytes();
    SocketAddr::from(([100, a, b, c], 9_000))
}

/// A session with packets of several kinds that the server has not received yet.
fn unseen_packets(line: &mut Line, count: usize) -> Vec<Vec<u8>> {
    let (session, _) = line.join(1);
    line.run(100);
    let mut packets = Vec::new();
    while packets.len() < count {
        let (channel, len) = match packets.len() % 3 {
            0 => (UNRELIABLE, 3),
            1 => (RELIABLE, 20),
            _ => (UNRELIABLE, 70),
        };
        line.client
            .machine
            .send(line.now, session, channel, &vec![5; len])
            .unwrap();
        let sent = line.client.drain(line.now);
        packets.extend(sent.into_iter().map(|sent| sent.bytes));
        line.now += Duration::from_millis(1);
    }
    packets
}

/// The externally visible state of a session, except counters of drops.
fn view(endpoint: &Party, session: SessionId) -> String {
    let machine = &endpoint.machine;
    let stats = machine.session_stats(session).map(|mut stats| {
        stats.packets_unopened = 0;
        stats
    });
    format!(
        "{stats:?} {:?} {} {:?} {:?}",
        machine.poll_timeout(),
        machine.memory(),
        machine.peer_address(session),
        machine.proof(session),
    )
}

/// Makes `endpoint` derive the key of the next phase, with a copy of a packet with the phase bit
/// flipped.
fn forge_key_phase(endpoint: &mut Party, now: Instant, from: &str, packet: &[u8]) {
    let memory = endpoint.machine.memory();
    let mut forged = packet.to_vec();
    forged[0] ^= 0x20;
    // A number above all others.
    forged[5] = 0x3F;
    endpoint.take(now, address(from), &forged);
    assert!(endpoint.machine.memory() > memory);
}

/// Each bit of more than 1,000 packets, in twelve sessions.
#[test]
fn twp_k2_r4_no_packet_opens_with_a_bit_flipped_and_none_changes_anything() {
    let count: usize = (8..20).map(flip_each_bit).sum();
    assert!(count >= 1_000, "{count} packets");
}

/// Returns the number of packets.
fn flip_each_bit(seed: u64) -> usize {
    let mut line = Line::new(seed);
    let packets = unseen_packets(&mut line, 90);
    let theirs = line.server.sessions()[0];
    line.server.drain(line.now);
    // The next phase's key is the only state that a forged packet may create.
    forge_key_phase(&mut line.server, line.now, CLIENT, &packets[0]);
    let before = *line.server.machine.stats();
    let state = view(&line.server, theirs);
    let mut flips = 0;
    for packet in &packets {
        for bit in 0..packet.len() * 8 {
            let mut changed = packet.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            line.server.take(line.now, line.client.at, &changed);
            flips += 1;
        }
    }
    let stats = *line.server.machine.stats();
    assert_eq!(stats.taken(), before.taken(), "of {flips}");
    assert_eq!(stats.dropped() - before.dropped(), flips);
    // A drop may be due to the first byte, header, connection id, window or tag.
    let by_reason = stats.dropped_first_byte - before.dropped_first_byte
        + (stats.dropped_header - before.dropped_header)
        + (stats.dropped_malformed - before.dropped_malformed)
        + (stats.dropped_reply - before.dropped_reply)
        + (stats.dropped_unknown_session - before.dropped_unknown_session)
        + (stats.dropped_replayed - before.dropped_replayed)
        + (stats.dropped_forged - before.dropped_forged);
    assert_eq!(by_reason, flips);
    assert!(stats.dropped_forged - before.dropped_forged > flips / 2);
    assert_eq!(view(&line.server, theirs), state);
    assert!(line.server.drain(line.now).is_empty());
    // Afterwards all original packets open.
    for packet in &packets {
        line.server.take(line.now, line.client.at, packet);
    }
    let taken = line.server.machine.stats().taken() - before.taken();
    assert_eq!(taken, u64::try_from(packets.len()).unwrap());
    packets.len()
}

#[test]
fn twp_r4_r5_forged_packets_cause_no_event_close_block_or_byte() {
    let mut line = Line::new(9);
    let (session, theirs) = line.join(1);
    line.run(500);
    let mut generator = Seed::from_number(9).generator(1);
    let samples: Vec<Vec<u8>> = [true, false]
        .map(|is_client| {
            let last = line
                .record
                .iter()
                .rev()
                .find(|(from, _)| *from == is_client);
            last.unwrap().1.clone()
        })
        .into();
    forge_key_phase(&mut line.server, line.now, CLIENT, &samples[0]);
    forge_key_phase(&mut line.client, line.now, SERVER, &samples[1]);
    let states = (view(&line.server, theirs), view(&line.client, session));
    let events = (line.server.events.len(), line.client.events.len());
    for _ in 0..10_000 {
        for (sample, is_to_server) in samples.iter().zip([true, false]) {
            // The header of a valid packet with a random number, and random bytes behind it.
            let mut forged = sample[..5].to_vec();
            forged[0] |= [0x00, 0x10, 0x20, 0x30][usize::try_from(generator.below(4)).unwrap()];
            let len = usize::try_from(generator.between(17, 200)).unwrap();
            let mut noise = vec![0; len];
            generator.fill(&mut noise);
            forged.extend_from_slice(&noise);
            let (endpoint, from) = if is_to_server {
                (&mut line.server, CLIENT)
            } else {
                (&mut line.client, SERVER)
            };
            endpoint.take(line.now, address(from), &forged);
        }
    }
    for endpoint in [&mut line.server, &mut line.client] {
        assert!(endpoint.drain(line.now).is_empty());
        assert!(endpoint.machine.blocked().is_empty());
        assert!(endpoint.machine.stats().dropped_forged > 9_000);
    }
    assert_eq!(
        (view(&line.server, theirs), view(&line.client, session)),
        states
    );
    let after = (line.server.events.len(), line.client.events.len());
    assert_eq!(after, events);
}

/// A HELLO-sized datagram: random bytes, a truncated capture, or one with bits flipped.
fn junk(kind: usize, captures: &[Vec<u8>], generator: &mut Generator) -> Vec<u8> {
    let index = generator.below(u64::try_from(captures.len()).unwrap());
    let mut bytes = captures[usize::try_from(index).unwrap()].clone();
    let mut below = |bound: usize| usize::try_from(generator.below(bound.try_into().unwrap()));
    match kind {
        0 => {
            let len = below(1_600).unwrap();
            bytes = vec![0; len];
            generator.fill(&mut bytes);
        }
        1 => bytes.truncate(below(bytes.len()).unwrap()),
        _ => {
            for _ in 0..=below(4).unwrap() {
                let bit = below(bytes.len() * 8).unwrap();
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
    bytes
}

#[test]
fn junk_at_every_port_is_counted_by_reason_and_does_nothing() {
    let mut line = Line::with(
        14,
        crate::direct::without_rate_limits(),
        Listen::with_open_mode,
    );
    let (session, theirs) = line.join(1);
    line.client
        .machine
        .send(line.now, session, RELIABLE, &[3; 3_000])
        .unwrap();
    line.run(1_000);
    let captures: Vec<Vec<u8>> = line.record.iter().map(|(_, b)| b.clone()).collect();
    let mut generator = Seed::from_number(14).generator(6);
    let events = (line.client.events.clone(), line.server.events.clone());
    for (is_server, kind) in [true, false]
        .into_iter()
        .flat_map(|side| (0..3).map(move |kind| (side, kind)))
    {
        let endpoint = if is_server {
            &mut line.server
        } else {
            &mut line.client
        };
        let before = *endpoint.machine.stats();
        for _ in 0..10_000 {
            let bytes = junk(kind, &captures, &mut generator);
            let from = if generator.chance(500_000) {
                unknown_address(generator.next_u32() >> 8)
            } else if is_server {
                address(CLIENT)
            } else {
                address(SERVER)
            };
            endpoint.take(line.now, from, &bytes);
            endpoint.drain(line.now);
        }
        let stats = *endpoint.machine.stats();
        let received = stats.datagrams_received() - before.datagrams_received();
        assert_eq!(received, 10_000, "{stats:?}");
        assert_eq!(stats.packets, before.packets, "none opened");
        assert_eq!(stats.accepted, before.accepted);
    }
    assert_eq!(
        (line.client.events.clone(), line.server.events.clone()),
        events
    );
    // The session is unaffected.
    let messages = line.server.messages.len();
    line.client
        .machine
        .send(line.now, session, RELIABLE, b"still here")
        .unwrap();
    line.run(100);
    assert_eq!(line.server.messages.len(), messages + 1);
    assert!(line.server.machine.session_stats(theirs).is_some());
}
