//! Tickwire peer to peer: rollback, or lockstep without prediction.

use core::time::Duration;

use lockstep::{CommitSecret, MeshConfig, MeshEvent, MeshPeer, PeerId, Step, Tick};
use wire::{Arrival, Instant, MatchId, Seat, Seed};

use super::{Count, Post, Setup, Stack};
use crate::game::{Game, Saved};
use crate::play::Play;

/// A peer-to-peer match.
pub struct TickwireMesh<P: Play>(Vec<Peer<P>>);

struct Peer<P: Play> {
    machine: MeshPeer<P>,
    game: Game,
    /// Saved states at index `tick % SAVES`, more than a prediction window needs.
    saves: [Saved; SAVES],
    /// Number of final ticks.
    settled: u64,
    has_found_desync: bool,
}

/// Number of saved states.
const SAVES: usize = 64;
/// The match id.
const MATCH: MatchId = MatchId([0x6d; 16]);

impl<P: Play> Peer<P> {
    fn new(setup: &Setup, own: u16) -> Self {
        let now = Instant::ZERO + instant::now();
        let players = u16::try_from(setup.players).expect("as many as seats");
        let mut config = MeshConfig::default();
        config.seats = players;
        config.input_delay = u8::try_from(setup.delay).expect("a delay");
        config.window = u8::try_from(setup.window).expect("a window");
        config.commit = setup.commits.then(|| {
            let [_, secret] = own.to_be_bytes();
            CommitSecret::new([secret; 32])
        });
        let others = (0..players).filter(|other| *other != own);
        let others: Vec<_> = others
            .map(|other| (Seat(other), PeerId(other.into())))
            .collect();
        let seed = Seed::from_number(setup.seed * 64 + u64::from(own));
        let diverges_at = setup
            .diverges
            .and_then(|(who, at)| (who == usize::from(own)).then_some(at));
        Self {
            machine: MeshPeer::new(config, (MATCH, Seat(own)), &others, seed, now)
                .expect("a match that can be played"),
            game: Game::new(diverges_at),
            saves: [Saved::default(); SAVES],
            settled: 0,
            has_found_desync: false,
        }
    }

    fn turn(&mut self, now: Instant, post: &mut Post<'_>) {
        let machine = &mut self.machine;
        post.inbox.drain(|from, datagram| {
            machine.handle_datagram(now, Arrival::from(PeerId(from)), datagram);
        });
        if machine.poll_timeout().is_some_and(|at| at <= now) {
            machine.handle_timeout(now);
        }
        while self.go_on(now) {}
        while let Some(event) = self.machine.poll_event() {
            self.has_found_desync |= matches!(event, MeshEvent::Desync { .. });
        }
        let outbox = &mut *post.outbox;
        while let Some(to) = self.machine.poll_transmit(now, &mut outbox.bytes) {
            outbox.close(to.destination.0);
        }
    }

    /// Handles the machine's next request. Returns whether there was one.
    fn go_on(&mut self, now: Instant) -> bool {
        match self.machine.next_step(now) {
            Step::Wait { .. } => return false,
            Step::Save(tick) => {
                if let Some(save) = self.saves.get_mut(place(tick)) {
                    *save = self.game.save();
                }
            }
            Step::Load(tick) => {
                let saved = self.saves.get(place(tick)).copied();
                self.game.load(saved.expect("a state that was saved"));
            }
            Step::Advance { turn, is_last } => {
                let tick = turn.tick();
                self.game.advance(turn.inputs().map(|(_, it, _)| it.word()));
                if is_last {
                    self.settle(tick);
                }
            }
            Step::Settled(tick) => self.settle(tick),
        }
        true
    }

    fn settle(&mut self, tick: Tick) {
        self.settled = u64::from(tick.0) + 1;
        let state = self.game.state_after(self.settled);
        let state = state.expect("a step of late");
        self.machine
            .report(tick, state)
            .expect("the tick that became final");
    }
}

fn place(tick: Tick) -> usize {
    tick.0 as usize % SAVES
}

impl<P: Play> Stack<P> for TickwireMesh<P> {
    const NAME: &'static str = "tickwire-mesh";
    const SEAL: [u64; 2] = super::SEAL;
    const HAS_SERVER: bool = false;

    fn new(setup: &Setup) -> Self {
        let players = u16::try_from(setup.players).expect("as many as seats");
        Self((0..players).map(|own| Peer::new(setup, own)).collect())
    }

    fn poll(&mut self, node: usize, now: Duration, post: &mut Post<'_>) {
        self.0[node].turn(Instant::ZERO + now, post);
    }

    fn frame(&mut self, player: usize, now: Duration, input: P, post: &mut Post<'_>) {
        let peer = &mut self.0[player];
        let now = Instant::ZERO + now;
        // Before the match starts, an input counts for the first tick.
        peer.machine.submit(now, &input).ok();
        peer.turn(now, post);
    }

    fn game(&self, player: usize) -> &Game {
        &self.0[player].game
    }

    fn confirmed(&self, player: usize) -> u64 {
        self.0[player].settled
    }

    fn count(&self, _: usize) -> Count {
        Count::default()
    }

    fn has_found_desync(&self) -> bool {
        self.0.iter().any(|peer| peer.has_found_desync)
    }
}
