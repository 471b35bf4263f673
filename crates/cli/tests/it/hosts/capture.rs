//! Captures at a relay: no payload, no player address, and no nonce used twice.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use daemon::relay::{FileLink, Mode, ProcessCommand};

use super::{ENTRY, EXIT, FAR, NEAR, PATTERN, PLAYER, Testbed};

const SECOND: Duration = Duration::from_secs(1);

/// A capture program, ended when this is dropped.
struct Capture {
    child: Child,
    file: PathBuf,
}

impl Capture {
    fn start(testbed: &Testbed, host: usize) -> Self {
        let file = testbed.sandbox.directory().join(format!("capture{host}"));
        let mut command: Command = testbed.network.command(host);
        let line = "tcpdump -i eth0 -Z root -U --immediate-mode -n -B 16384 -w";
        command.args(line.split(' ')).arg(&file).arg("udp");
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
        // It prints a line once it is capturing.
        assert!(said.any(|line| line.unwrap().contains("listening on")));
        Self { child, file }
    }

    /// Ends it and returns the capture.
    fn end(mut self) -> Vec<u8> {
        let id = self.child.id().to_string();
        let status = Command::new("kill").args(["-INT", &id]).status().unwrap();
        assert!(status.success());
        self.child.wait().unwrap();
        fs::read(Path::new(&self.file)).unwrap()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The packets of a capture: source, destination, UDP payload.
///
/// libpcap format: 24 bytes, then 16 before each packet, little-endian.
fn packets(capture: &[u8]) -> Vec<(IpAddr, IpAddr, &[u8])> {
    assert_eq!(capture[..4], 0xa1b2_c3d4_u32.to_le_bytes());
    let mut rest = &capture[24..];
    let mut packets = Vec::new();
    while let Some((head, after)) = rest.split_first_chunk::<16>() {
        let len = u32::from_le_bytes(*head[8..].first_chunk().unwrap());
        // Truncated when the program ended.
        let Some((frame, next)) = after.split_at_checked(usize::try_from(len).unwrap()) else {
            break;
        };
        rest = next;
        let (ethernet, ip) = frame.split_at(14);
        if ethernet[12..] != [8, 0] {
            continue;
        }
        let head = usize::from(ip[0] & 15) * 4;
        let ends: [[u8; 4]; 2] = [12, 16].map(|at| *ip[at..].first_chunk().unwrap());
        packets.push((ends[0].into(), ends[1].into(), &ip[head + 8..]));
    }
    packets
}

#[test]
#[ignore = "needs ip, tcpdump"]
fn pg3_pgx1_mesh_a5_captures_hold_no_payload_player_or_nonce_twice() {
    let _alone = crate::alone();
    let Some(mut testbed) = Testbed::new(Mode::Dup) else {
        return;
    };
    testbed.start_all();
    let at_relay = [NEAR, FAR].map(|relay| Capture::start(&testbed, relay));
    let at_ends = [ENTRY, EXIT].map(|end| Capture::start(&testbed, end));
    let near = testbed.id(NEAR);
    testbed.play_until(|relays| relays == [near]);
    testbed.play(3 * SECOND);
    // Each relay in use is slowed in turn, so that traffic changes its route.
    for slow in [NEAR, FAR] {
        for (node, peer) in [(ENTRY, slow), (slow, ENTRY)] {
            let order = ProcessCommand::Link(FileLink {
                remote: testbed.network.ip(peer),
                delay_ms: 150,
                loss_per_million: 0,
            });
            testbed.nodes[node].as_mut().unwrap().send(&order).unwrap();
        }
        let slow = testbed.id(slow);
        let took = testbed.play_until(|relays| !relays.contains(&slow));
        eprintln!("a relay got slow: left after {took:?}");
        testbed.play(SECOND);
    }

    let player = testbed.network.ip(PLAYER);
    let IpAddr::V4(address) = player else {
        panic!("hosts have IPv4")
    };
    for capture in at_relay {
        let bytes = capture.end();
        let frames = packets(&bytes);
        let hops = frames.iter().filter(|(.., payload)| is_hop(payload));
        assert!(hops.count() > 100, "it carried the game");
        assert!(!holds(&bytes, PATTERN), "the payload");
        assert!(!holds(&bytes, &address.octets()), "the player's address");
        let text = address.to_string();
        assert!(!holds(&bytes, text.as_bytes()), "nor as text");
    }
    // Outside the mesh both appear in clear text, so the search works.
    let [entry, exit] = at_ends.map(Capture::end);
    assert!(holds(&entry, PATTERN) && holds(&entry, &address.octets()));
    for capture in [entry, exit] {
        let frames = packets(&capture);
        let mut seen = BTreeSet::new();
        let mut count = 0;
        for (from, to, payload) in frames.iter().filter(|(.., payload)| is_hop(payload)) {
            count += 1;
            // Link epoch, generation, label and number determine key and nonce.
            let name = (from, to, payload[1] & 3, payload[2], &payload[4..16]);
            assert!(seen.insert(name), "sealed twice: {name:?}");
        }
        assert!(count > 500, "{count}");
    }
}

/// Whether a datagram is a sealed hop frame.
fn is_hop(payload: &[u8]) -> bool {
    payload.first() == Some(&0x81) && payload.len() >= 48
}

fn holds(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}
