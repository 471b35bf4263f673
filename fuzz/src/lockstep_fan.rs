//! A spectator relay between a server and children, all of them hostile.

use core::time::Duration;

use lockstep::{PeerId, SpectatorRelay, SpectatorRelayConfig};
use wire::{Arrival, Instant, Seed};

/// Runs a script of `op 1, length 1, bytes` against a spectator relay. After each operation the
/// relay becomes idle. It wakes only as often as its match and its children justify, sends no
/// datagram over the maximum length, and holds bounded memory.
///
/// The low three bits of `op`: 0 a datagram of the server; 1 a welcome to a match of two seats,
/// with the bytes as its last fields; 2 turns, with the bytes after the kind; 3 and 4 a datagram of
/// a child; 5 adds or removes a child; 6 advances the time by up to 4 s; 7 a new upstream session.
/// The other bits select the child.
pub fn script(data: &[u8]) {
    run(data);
}

fn run(mut data: &[u8]) -> Fan {
    let mut fan = Fan::new();
    while let Some(([op, len], rest)) = data.split_first_chunk() {
        let len = usize::from(*len).min(rest.len());
        let (bytes, behind) = rest.split_at(len);
        data = behind;
        fan.act(*op, bytes);
    }
    // A period without any input.
    fan.go_on(Duration::from_secs(5));
    fan
}

struct Fan {
    machine: SpectatorRelay,
    now: Instant,
    /// Time that a script may still advance.
    time_left: Duration,
}

const SERVER: PeerId = PeerId(0);

/// Maximum children of the relay in this test.
const CHILDREN: u32 = 3;

/// Maximum ticks per second: a tick is at least 1 ms and may be 2 % shorter.
const RATE_MAX: u128 = 1_021;

/// Maximum memory of the relay: 1,280 bundles of 64 bytes with their metadata, two temporary
/// snapshots, and the state that sends one to each child.
const HELD_MAX: usize = 512 << 10;

impl Fan {
    fn new() -> Self {
        let now = Instant::from_millis(1);
        let mut config = SpectatorRelayConfig::default();
        config.children_max = CHILDREN;
        config.seats_max = 4;
        config.bundle_len_max = 64;
        config.snapshot_len_max = 4_096;
        Self {
            machine: SpectatorRelay::new(config, SERVER, Seed::from_number(1), now),
            now,
            time_left: Duration::from_secs(20),
        }
    }

    fn act(&mut self, op: u8, bytes: &[u8]) {
        let child = PeerId(u32::from(op >> 3) % (CHILDREN + 1) + 1);
        match op % 8 {
            0 => self.hear(SERVER, bytes.to_vec()),
            1 => {
                // A spectator's welcome: no seat, 16 bits.
                let mut welcome = vec![0x81, 2, 0, 0, 2, 0xff, 0xff, 0, 16];
                welcome.extend_from_slice(bytes);
                welcome.resize(9 + 24, 1);
                self.hear(SERVER, welcome);
            }
            2 => self.hear(SERVER, [&[0x82], bytes].concat()),
            3 | 4 => self.hear(child, bytes.to_vec()),
            5 if op < 0x80 => {
                let is_full = self.machine.child_count() >= 3;
                // One child relays to others.
                let is_in = if child == PeerId(1) {
                    self.machine.watch_as_relay(self.now, child).is_ok()
                } else {
                    self.machine.watch(self.now, child).is_ok()
                };
                assert!(!(is_full && is_in), "one more than may be");
            }
            5 => self.machine.leave(self.now, child),
            6 => {
                let millis = bytes
                    .iter()
                    .take(2)
                    .fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
                let span = Duration::from_millis(millis % 4_096).min(self.time_left);
                self.time_left -= span;
                self.go_on(span);
            }
            _ if op == 0xff => self.machine.close(self.now),
            _ => self.machine.reconnect(self.now, SERVER),
        }
        self.drain();
    }

    fn hear(&mut self, peer: PeerId, mut datagram: Vec<u8>) {
        let arrival = Arrival::from(peer);
        self.machine
            .handle_datagram(self.now, arrival, &mut datagram);
    }

    /// Advances the time from one deadline to the next, as a driver does.
    fn go_on(&mut self, span: Duration) {
        let end = self.now + span;
        // Per child and tick: a turn, a snapshot chunk and an upstream message.
        let each = span.as_millis() * RATE_MAX / 1_000 + 64;
        let most = each * u128::from(3 * CHILDREN + 1);
        let mut wakes = 0;
        while let Some(at) = self.machine.poll_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.machine.handle_timeout(self.now);
            self.drain();
            wakes += 1;
            assert!(wakes <= most, "it spins");
        }
        self.now = end;
        self.machine.handle_timeout(end);
        self.drain();
        let next = self.machine.poll_timeout();
        assert!(next.is_none_or(|next| next > end), "it spins");
    }

    fn drain(&mut self) {
        let (mut said, mut buf) = (0, Vec::new());
        while let Some(to) = self.machine.poll_transmit(self.now, &mut buf) {
            assert!(buf.len() <= 1_100, "{} bytes", buf.len());
            assert!(to.destination.0 <= CHILDREN + 1, "{:?}", to.destination);
            buf.clear();
            said += 1;
            assert!(said <= 1_000, "it never comes to rest");
        }
        while self.machine.poll_event().is_some() {}
        assert!(self.machine.child_count() <= 3);
        let held = self.machine.memory_len();
        assert!(held < HELD_MAX, "{held} bytes");
    }
}

#[cfg(test)]
mod tests {
    use lockstep::Phase;

    use super::*;

    #[test]
    fn the_seeds_reach_the_cases_they_are_named_for() {
        let fan = run(include_bytes!("../corpus/lockstep_fan/seed_serves"));
        assert_eq!(fan.machine.ticks_confirmed(), 8);
        assert!(fan.machine.stats().children.turns_sent > 1);
        assert_eq!(fan.machine.child_count(), 1, "one left");
        let fan = run(include_bytes!("../corpus/lockstep_fan/seed_is_put_out"));
        assert_eq!(fan.machine.phase(), Phase::Closed);
        let fan = run(include_bytes!(
            "../corpus/lockstep_fan/seed_a_match_too_large"
        ));
        assert_eq!(fan.machine.phase(), Phase::Closed);
    }
}
