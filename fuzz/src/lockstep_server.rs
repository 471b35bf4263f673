//! A match server with one hostile player.

use core::time::Duration;

use lockstep::{ClientConfig, ClientPeer, Config, MatchServer, PeerId, ServerEvent, StateHasher};
use wire::{Arrival, Instant, MatchId, Seat, Seed};

/// Runs a script of `op 1, length 1, bytes` against a server and an honest player, over a link
/// whose losses the script sets. Ticks close on time, both states agree, the honest player is never
/// reported for a desync, and the server holds bounded memory.
///
/// The low three bits of `op`: 0 to 2 a datagram of the hostile player; 3 one which is a report and
/// starts with the match's current position; 4 advances the time by up to 4 s; 5 a datagram of an
/// unknown peer; 6 the hostile player's transport disconnects; 7 sets the losses of the next
/// datagrams.
pub fn script(data: &[u8]) {
    live(data);
}

fn live(mut data: &[u8]) -> World {
    let mut world = World::new();
    while let Some(([op, len], rest)) = data.split_first_chunk() {
        let len = usize::from(*len).min(rest.len());
        let (bytes, behind) = rest.split_at(len);
        data = behind;
        world.act(*op, bytes);
    }
    world.is_losing = Vec::new();
    world.go_on(3_000);
    assert!(
        world.player.log.len() + 20 > world.log.len(),
        "it is behind"
    );
    world
}

struct World {
    server: MatchServer<u16>,
    /// The server's state after each tick.
    log: Vec<u64>,
    player: Player,
    now: Instant,
    /// Which datagrams of the honest player's link are lost, last first.
    is_losing: Vec<bool>,
    /// Losses still allowed: the server rightly reports a player as silent after 2 s without
    /// datagrams.
    losses_left: usize,
    /// Time of the first tick.
    began: Option<Instant>,
}

struct Player {
    machine: ClientPeer<u16>,
    log: Vec<u64>,
}

const SERVER: PeerId = PeerId(100);
const HOSTILE: PeerId = PeerId(0);
const HONEST: PeerId = PeerId(1);
const ID: MatchId = MatchId([3; 16]);
const STEP: Duration = Duration::from_millis(4);

impl World {
    fn new() -> Self {
        let now = Instant::from_millis(1);
        let mut config = Config::default();
        config.seats = 2;
        let seed = Seed::from_number(1);
        let mut server = MatchServer::new(config, ID, seed, now).expect("it can be played");
        for (peer, seat) in [(HOSTILE, Seat(0)), (HONEST, Seat(1))] {
            server.join(now, peer, seat).expect("the seat is free");
        }
        let player = ClientPeer::new(ClientConfig::default(), SERVER, seed, now);
        let mut world = Self {
            server,
            log: Vec::new(),
            player: Player {
                machine: player,
                log: Vec::new(),
            },
            now,
            is_losing: Vec::new(),
            losses_left: 100,
            began: None,
        };
        world.hear(HOSTILE, vec![1, 2, 0, 0, 0, 0]);
        world.go_on(100);
        world
    }

    fn act(&mut self, op: u8, bytes: &[u8]) {
        match op % 8 {
            3 => {
                let [.., high, low] = self.server.ticks_closed().to_be_bytes();
                let back = low.wrapping_sub(op / 8);
                self.hear(HOSTILE, [&[2, high, back], bytes].concat());
            }
            4 => {
                let millis = bytes
                    .iter()
                    .take(2)
                    .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
                self.go_on(millis % 4_096);
            }
            5 => self.hear(PeerId(u32::from(op)), bytes.to_vec()),
            6 => self.server.leave(self.now, HOSTILE),
            7 => {
                let bits = bytes
                    .iter()
                    .take(8)
                    .flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 == 1));
                self.is_losing = bits.take(self.losses_left).collect();
                self.losses_left -= self.is_losing.len();
            }
            _ => self.hear(HOSTILE, bytes.to_vec()),
        }
        self.turn();
    }

    fn hear(&mut self, peer: PeerId, mut datagram: Vec<u8>) {
        let arrival = Arrival::from(peer);
        self.server
            .handle_datagram(self.now, arrival, &mut datagram);
    }

    fn go_on(&mut self, millis: u64) {
        let end = self.now + Duration::from_millis(millis);
        while self.now < end {
            self.now += STEP;
            self.turn();
        }
    }

    fn turn(&mut self) {
        self.server.handle_timeout(self.now);
        let next = self.server.poll_timeout();
        assert!(next.is_none_or(|next| next > self.now), "it spins");
        self.player.machine.handle_timeout(self.now);
        self.exchange();
        self.play();
        while let Some(event) = self.server.poll_event() {
            match event {
                ServerEvent::Started => self.began = Some(self.now),
                ServerEvent::Desync { seats, .. } => assert_eq!(seats, [Seat(0)]),
                ServerEvent::Left { seat, .. } | ServerEvent::Silent { seat, .. } => {
                    assert_eq!(seat, Seat(0), "the honest player");
                }
                ServerEvent::Ready { .. } | _ => {}
            }
        }
        let held = self.server.memory_len();
        assert!(held < 128 << 10, "{held} bytes");
        if let Some(began) = self.began {
            let ticks = self.now.saturating_since(began).as_nanos() / 16_666_666;
            let closed = u128::from(self.server.ticks_closed());
            assert!(ticks.abs_diff(closed) <= 1, "{closed} of {ticks} ticks");
        }
    }

    fn exchange(&mut self) {
        let mut buf = Vec::new();
        while let Some(transmit) = self.server.poll_transmit(self.now, &mut buf) {
            assert!(buf.len() <= 1_100, "{} bytes", buf.len());
            if transmit.destination == HONEST && !self.is_losing.pop().unwrap_or(false) {
                let arrival = Arrival::from(SERVER);
                self.player
                    .machine
                    .handle_datagram(self.now, arrival, &mut buf);
            }
            buf.clear();
        }
        let input = u16::try_from(self.now.as_nanos() / 300_000_000 % 7).expect("below 7");
        self.player.machine.submit(self.now, &input).ok();
        while self
            .player
            .machine
            .poll_transmit(self.now, &mut buf)
            .is_some()
        {
            if !self.is_losing.pop().unwrap_or(false) {
                let arrival = Arrival::from(HONEST);
                self.server.handle_datagram(self.now, arrival, &mut buf);
            }
            buf.clear();
        }
    }

    /// Advances both games. All ticks that both have simulated must be equal.
    fn play(&mut self) {
        while let Some(turn) = self.server.poll_turn() {
            let state = step(self.log.last(), &turn);
            let tick = turn.tick();
            self.log.push(state);
            self.server.report(tick, state).expect("in order");
        }
        while let Some(turn) = self.player.machine.poll_turn(self.now) {
            let state = step(self.player.log.last(), &turn);
            let tick = turn.tick();
            assert_eq!(self.log.get(self.player.log.len()), Some(&state), "{tick}");
            self.player.log.push(state);
            self.player.machine.report(tick, state).expect("in order");
        }
    }
}

fn step(before: Option<&u64>, turn: &lockstep::Turn<'_, u16>) -> u64 {
    let mut hasher = StateHasher::new(ID);
    hasher.u64(before.copied().unwrap_or(0));
    for (_, input, origin) in turn.inputs() {
        hasher.u64(input.into());
        hasher.u8(origin.code());
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_reaches_inputs_hashes_and_losses() {
        let world = live(include_bytes!(
            "../corpus/lockstep_server/seed_presses_everything"
        ));
        let stats = world.server.stats();
        assert_eq!((stats.inputs_early, stats.dropped_malformed), (1, 0));
        let world = live(include_bytes!(
            "../corpus/lockstep_server/seed_lies_about_its_state"
        ));
        assert!(world.server.stats().hashes_compared > 100);
        let world = live(include_bytes!("../corpus/lockstep_server/seed_loses"));
        assert!(world.server.stats().catch_up_datagrams > 0);
        let world = live(include_bytes!("../corpus/lockstep_server/seed_leaves"));
        assert_eq!(world.server.stats().dropped_unknown_peer, 1);
    }
}
