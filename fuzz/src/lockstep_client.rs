//! A client with a hostile server.

use core::time::Duration;

use lockstep::{ClientConfig, ClientPeer, LeaveReason, PeerId, Step, Tick};
use wire::{Arrival, Instant, Seed};

/// Runs a script of `op 1, length 1, bytes` against a client. The client wakes at most about a
/// thousand times a second, sends no more than the input justifies, and holds bounded memory.
///
/// The low three bits of `op`: 0 and 1 a datagram; 2 a welcome to a match of this client's kind,
/// with the bytes as fields; 3 turns, with the bytes after the kind, or early inputs if all other
/// bits are set; 4 advances the time by up to 4 s; 5 advances the game; 6 submits an input; 7
/// leaves if the other bits are set, and otherwise sends a datagram from an unknown peer.
///
/// The same script runs with plain lockstep and with prediction.
pub fn script(data: &[u8]) {
    live(data, 0);
    live(data, 8);
}

fn live(mut data: &[u8], window: u8) -> Client {
    let mut client = Client::new(window);
    while let Some(([op, len], rest)) = data.split_first_chunk() {
        let len = usize::from(*len).min(rest.len());
        let (bytes, behind) = rest.split_at(len);
        data = behind;
        client.act(*op, bytes);
    }
    // A period without any input.
    client.go_on(Duration::from_secs(5));
    client
}

struct Client {
    machine: ClientPeer<u16>,
    now: Instant,
    /// The first tick which is not final.
    settled: Tick,
    /// Time that a script may still advance.
    time_left: Duration,
}

/// Maximum wakes and datagrams per second: a tick is at least 1 ms and may be 2 % shorter.
const RATE_MAX: u128 = 1_021;

impl Client {
    fn new(window: u8) -> Self {
        let now = Instant::from_millis(1);
        let (mut config, seed) = (ClientConfig::default(), Seed::from_number(1));
        config.window = window;
        Self {
            machine: ClientPeer::new(config, PeerId(0), seed, now),
            now,
            settled: Tick(0),
            time_left: Duration::from_secs(20),
        }
    }

    fn act(&mut self, op: u8, bytes: &[u8]) {
        match op % 8 {
            2 => {
                let mut welcome = vec![0x81, 2, 0, 0, 3, 0, 1, 0, 16];
                welcome.extend_from_slice(bytes);
                welcome.resize(9 + 24, 1);
                self.hear(0, welcome);
            }
            3 if op == 251 => self.hear(0, [&[0x85], bytes].concat()),
            3 => self.hear(0, [&[0x82], bytes].concat()),
            4 => {
                let millis = bytes
                    .iter()
                    .take(2)
                    .fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
                let span = Duration::from_millis(millis % 4_096).min(self.time_left);
                self.time_left -= span;
                self.go_on(span);
            }
            5 => self.play(u32::from(op / 8) + 2),
            6 => {
                let input = bytes.first().copied().unwrap_or(0);
                self.machine.submit(self.now, &input.into()).ok();
            }
            7 if op == 255 => self.machine.leave(self.now, LeaveReason::Behind),
            7 => self.hear(9, bytes.to_vec()),
            _ => self.hear(0, bytes.to_vec()),
        }
        let said = self.drain();
        assert!(said <= 1, "{said} datagrams at once");
    }

    /// Advances the game. Omits the state hash of each tick that `every` divides.
    fn play(&mut self, every: u32) {
        for _ in 0..100_000 {
            let is_final = match self.machine.next_step(self.now) {
                Step::Wait { .. } => return,
                Step::Save(_) => None,
                Step::Load(tick) => {
                    assert!(tick >= self.settled, "it goes back to what is final");
                    None
                }
                Step::Settled(tick) => Some(tick),
                Step::Advance { turn, is_last } => {
                    assert_eq!(turn.seat_count(), 3);
                    is_last.then(|| turn.tick())
                }
            };
            if let Some(tick) = is_final {
                assert_eq!(tick, self.settled, "final in order, each once");
                self.settled = tick.plus(1);
                if !tick.0.is_multiple_of(every) {
                    let hash = u64::from(tick.0);
                    self.machine.report(tick, hash).expect("in order");
                }
            }
        }
        panic!("the game never comes to rest");
    }

    fn hear(&mut self, peer: u32, mut datagram: Vec<u8>) {
        let arrival = Arrival::from(PeerId(peer));
        self.machine
            .handle_datagram(self.now, arrival, &mut datagram);
    }

    /// Advances the time from one deadline to the next, as a driver does.
    fn go_on(&mut self, span: Duration) {
        let end = self.now + span;
        let most = span.as_millis() * RATE_MAX / 1_000 + 32;
        let (mut wakes, mut said) = (0_u128, 0_u128);
        while let Some(at) = self.machine.poll_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.machine.handle_timeout(self.now);
            said += self.drain();
            wakes += 1;
            assert!(wakes <= most && said <= most, "it spins: {wakes} {said}");
        }
        self.now = end;
        self.machine.handle_timeout(end);
        self.drain();
        let next = self.machine.poll_timeout();
        assert!(next.is_none_or(|next| next > end), "it spins");
    }

    fn drain(&mut self) -> u128 {
        let (mut said, mut buf) = (0, Vec::new());
        while self.machine.poll_transmit(self.now, &mut buf).is_some() {
            assert!(buf.len() <= 1_100, "{} bytes", buf.len());
            buf.clear();
            said += 1;
            assert!(said <= 1_000, "it never comes to rest");
        }
        let held = self.machine.memory_len();
        assert!(held < 64 << 10, "{held} bytes");
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_reaches_turns_and_extremes() {
        let client = live(include_bytes!("../corpus/lockstep_client/seed_plays"), 0);
        assert_eq!(client.machine.stats().turns, 8);
        assert!(client.machine.stats().inputs > 30);
        let client = live(include_bytes!("../corpus/lockstep_client/seed_plays"), 8);
        assert_eq!(client.machine.stats().turns, 8);
        assert!(client.machine.stats().loads > 0);
        let client = live(
            include_bytes!("../corpus/lockstep_client/seed_a_tick_of_1_ms"),
            0,
        );
        assert!(client.machine.stats().datagrams_sent > 4_900);
        let client = live(
            include_bytes!("../corpus/lockstep_client/seed_a_tick_of_1_ns"),
            0,
        );
        assert_eq!(client.machine.stats().dropped_malformed, 2);
        assert_eq!(client.machine.poll_timeout(), None);
    }
}
