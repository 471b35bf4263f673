//! Resident memory of hostile sessions, measured in a process of its own.

#![cfg(target_os = "linux")]

use core::time::Duration;
use std::process::Command;

use netsim::provider::SimProvider;
use udp_proto::Config;
use wire::{Arrival, Seed};

use crate::authenticated::{fragment, message};
use crate::direct::{Party, START, UNIX, network};
use crate::harness::{Keys, SERVER, address};
use crate::rogue::{Rogue, confirm};

/// Sessions of the measured process; 4,096 take a minute.
const SESSIONS: u16 = 128;
/// Overrides the number of sessions, for a manual run.
const SESSIONS_SET: &str = "TICKWIRE_TEST_SESSIONS";
/// Names the form of the hostile messages for that process.
const FORM: &str = "TICKWIRE_TEST_FORM";

/// 4,096 sessions with valid keys fill what they may with unread data and leave messages
/// incomplete. They stay within the gibibyte that docs/guides/deploy.md promises.
#[test]
fn a_server_of_4_096_hostile_sessions_is_resident_in_a_gibibyte() {
    let mut failed = Vec::new();
    for form in ["whole", "pieces", "empty", "mixed"] {
        let output = Command::new(std::env::current_exe().expect("this one"))
            .args([
                "--exact",
                "resident::measure_resident_memory",
                "--nocapture",
            ])
            .env(FORM, form)
            .output()
            .expect("it starts");
        let text = String::from_utf8_lossy(&output.stderr);
        let kib = text
            .split_once("KiB-a-session=")
            .and_then(|(_, rest)| rest.split_whitespace().next())
            .and_then(|number| number.parse::<u64>().ok());
        let kib = kib.unwrap_or_else(|| panic!("{text}"));
        eprintln!("{form}: {kib} KiB a session");
        if kib * 4_096 > 1 << 20 {
            failed.push((form, kib));
        }
    }
    assert_eq!(failed, [], "KiB a session");
}

/// The measured process; does nothing without a form.
#[test]
fn measure_resident_memory() {
    let Ok(form) = std::env::var(FORM) else {
        return;
    };
    let set = std::env::var(SESSIONS_SET).ok();
    let count: u16 = set.map_or(SESSIONS, |set| set.parse().expect("a number"));
    let config = Config::for_server();
    let window = usize::try_from(config.receive_window).unwrap();
    let mut keys = Keys::new(Seed::from_number(1));
    let provider = SimProvider::new(Seed::from_number(2));
    let mut server = Party::server(config, &keys, provider, |listen| listen);
    let mut now = START;
    let mut sessions = Vec::new();
    let before = resident_kib();
    for number in 0..count {
        now += Duration::from_millis(1);
        let from = network(number);
        let token = keys.token(
            UNIX + now.saturating_since(START),
            number.into(),
            address(SERVER),
        );
        let mut rogue = Rogue::new(number.into(), &token);
        server.take(now, from, &rogue.hello);
        let mut answer = server.drain(now).remove(0).bytes;
        if answer[0] == 0xC2 {
            rogue.follow(&answer);
            server.take(now, from, &rogue.hello);
            answer = server.drain(now).remove(0).bytes;
        }
        let mut session = rogue.accept(&answer);
        server.take(now, from, &session.packet(&confirm(&Config::default())));
        server.drain(now);
        sessions.push((from, session));
    }
    assert_eq!(server.sessions().len(), usize::from(count));
    let plaintexts = hostile(&form, window);
    for part in plaintexts.chunks(200) {
        now += Duration::from_secs(1);
        for (from, session) in &mut sessions {
            for plaintext in part {
                let mut packet = session.packet(plaintext);
                server
                    .machine
                    .handle_datagram(now, Arrival::from(*from), &mut packet);
            }
            // The application reads nothing.
            let mut sent = Vec::new();
            while server.machine.poll_transmit(now, &mut sent).is_some() {
                sent.clear();
            }
            while server.machine.poll_event().is_some() {}
        }
    }
    let after = resident_kib();
    assert_eq!(
        server.machine.sessions().count(),
        usize::from(count),
        "none has gone too far"
    );
    let kib = (after - before) / u64::from(count);
    let sent_text = server.machine.memory() / usize::from(count) / 1_024;
    eprintln!("KiB-a-session={kib} said={sent_text}");
}

/// Packets of a peer that fills a window of `window` bytes and the limit for unreliable messages.
fn hostile(form: &str, window: usize) -> Vec<Vec<u8>> {
    let whole = |count: usize, from: u16| -> Vec<Vec<u8>> {
        (0..count)
            .map(|id| message(1, from + u16::try_from(id).unwrap(), &[7; 1_120]))
            .collect()
    };
    let pieces = |bytes: usize, from: u16| -> Vec<Vec<u8>> {
        // All fragments but the first of each message, which stays incomplete.
        (0..bytes / 1_120)
            .map(|index| {
                let (id, index) = (index / 57, index % 57 + 1);
                let id = from + u16::try_from(id).unwrap();
                fragment(1, id, (u16::try_from(index).unwrap(), 58), &[7; 1_120])
            })
            .collect()
    };
    let mut packets = match form {
        "whole" => whole(window / 1_120, 0),
        "pieces" => pieces(window, 0),
        "mixed" => [whole(window / 2_240, 0), pieces(window / 2, 500)].concat(),
        _ => {
            let frames: Vec<Vec<u8>> = (0..(window / 96).min(1_000))
                .map(|id| message(1, u16::try_from(id).unwrap(), &[]))
                .collect();
            frames.chunks(30).map(<[Vec<u8>]>::concat).collect()
        }
    };
    // Unreliable messages: fragments, then complete and unread, then empty and unread.
    packets.extend((0..60_u16).map(|id| fragment(0, id, (0, 2), &[7; 1_120])));
    packets.extend((0..60).map(|_| message(0, 0, &[7; 1_120])));
    packets.extend((0..40).map(|_| message(0, 0, &[]).repeat(30)));
    packets
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|rest| rest.split_whitespace().next());
    number
        .and_then(|number| number.parse().ok())
        .expect("a number")
}
