//! A match of eight players with many spectators: the cost of spectators to a server.

mod seal;

use core::time::Duration;

use lockstep::{ClientConfig, ClientPeer, Config, MatchServer, PeerId};
use wire::{Arrival, Generator, Instant, MatchId, Seat, Seed};

use crate::measure::{Case, cpu_time_of};
use seal::{Seal, Sent, admission};

/// First peer number of a spectator. Players have lower numbers.
const SPECTATORS: u32 = 1_000;

/// Players, each of which toggles a button six times a second.
const PLAYERS: u16 = 8;

/// A server, its players, and spectators with precomputed acknowledgements.
pub struct SpectatorBench {
    server: MatchServer<u16>,
    players: Vec<ClientPeer<u16>>,
    pads: Vec<u16>,
    spectators: u32,
    /// Age in ticks of a spectator's acknowledgement.
    age: u32,
    now: Instant,
    whims: Generator,
    buf: Vec<u8>,
    /// The part which is measured.
    part: Part,
    /// Encrypted sessions, if the spectators have them.
    seal: Option<Seal>,
    /// Bytes sent to spectators.
    bytes: usize,
    datagrams: u32,
}

/// The part of the server's work which is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A datagram to each spectator.
    Sending,
    /// An acknowledgement by a quarter of the spectators.
    Hearing,
    /// Both.
    Both,
}

impl core::fmt::Debug for SpectatorBench {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Hall").finish_non_exhaustive()
    }
}

impl SpectatorBench {
    /// Creates a running match with this many spectators, which acknowledge the state `age` ticks
    /// ago.
    #[must_use]
    pub fn new(spectators: u32, age: u32, part: Part) -> Self {
        let now = Instant::from_millis(1);
        let mut config = Config::default();
        config.seats = PLAYERS;
        config.spectators_max = spectators;
        let id = MatchId([7; 16]);
        let mut server = MatchServer::new(config, id, Seed::from_number(1), now)
            .expect("a match of eight pads is one");
        let mut players = Vec::new();
        for seat in 0..PLAYERS {
            let joined = server.join(now, PeerId(seat.into()), Seat(seat));
            joined.expect("each seat is free");
            let seed = Seed::from_number(seat.into());
            let config = ClientConfig::default();
            players.push(ClientPeer::new(config, PeerId(0), seed, now));
        }
        for peer in (SPECTATORS..).take(usize::try_from(spectators).unwrap_or(0)) {
            let watches = server.watch(now, PeerId(peer));
            watches.expect("there is room");
            let arrival = Arrival::from(PeerId(peer));
            server.handle_datagram(now, arrival, &mut [0x01, 2, 0, 0, 0, 0]);
        }
        let mut spectator_bench = Self {
            server,
            players,
            pads: vec![0; PLAYERS.into()],
            spectators,
            age,
            now,
            whims: Seed::from_number(2).generator(0),
            buf: Vec::with_capacity(2_000),
            part,
            seal: None,
            bytes: 0,
            datagrams: 0,
        };
        while spectator_bench.server.ticks_closed() < 200 {
            spectator_bench.turn();
        }
        spectator_bench
    }

    /// Creates a match with an encrypted session per spectator; these are measured too.
    #[must_use]
    pub fn sealed(spectators: u32, age: u32, part: Part) -> Self {
        let mut spectator_bench = Self::new(spectators, age, part);
        spectator_bench.seal = Some(Seal::new(spectator_bench.now, spectators));
        spectator_bench.now += admission(spectators);
        (spectator_bench.bytes, spectator_bench.datagrams) = (0, 0);
        let warm = spectator_bench.server.ticks_closed() + 200;
        while spectator_bench.server.ticks_closed() < warm {
            spectator_bench.turn();
        }
        spectator_bench
    }

    /// Returns the mean length in bytes of a datagram to a spectator.
    #[must_use]
    pub fn bytes_per_datagram(&self) -> f64 {
        f64::from(u32::try_from(self.bytes).unwrap_or(u32::MAX)) / f64::from(self.datagrams)
    }

    /// Runs until a tick is closed. Returns the measured CPU time.
    fn turn(&mut self) -> Duration {
        let before = self.server.ticks_closed();
        let mut spent = Duration::ZERO;
        while self.server.ticks_closed() == before {
            self.now += Duration::from_millis(4);
            self.server.handle_timeout(self.now);
            spent += self.send();
            self.play();
        }
        while self.server.poll_event().is_some() {}
        while self.server.poll_turn().is_some() {}
        spent + self.hear()
    }

    fn send(&mut self) -> Duration {
        // Players are served first.
        let mut to_spectator = None;
        while let Some(transmit) = self.server.poll_transmit(self.now, &mut self.buf) {
            let peer = transmit.destination;
            let place = usize::try_from(peer.0).unwrap_or(usize::MAX);
            let Some(player) = self.players.get_mut(place) else {
                to_spectator = Some(peer);
                break;
            };
            player.handle_datagram(self.now, Arrival::from(PeerId(0)), &mut self.buf);
            self.buf.clear();
        }
        let Some(first) = to_spectator else {
            return Duration::ZERO;
        };
        let Self {
            server,
            buf,
            now,
            seal,
            ..
        } = self;
        if let Some(seal) = seal {
            let sent = seal.send(*now, server, (first, buf));
            return self.note(&sent);
        }
        let (mut sent, mut sent_bytes) = (1, buf.len());
        buf.clear();
        let spent = cpu_time_of(|| {
            while server.poll_transmit(*now, buf).is_some() {
                sent += 1;
                sent_bytes += buf.len();
                buf.clear();
            }
        });
        let sent = Sent {
            spent,
            datagrams: sent,
            bytes: sent_bytes,
        };
        self.note(&sent)
    }

    /// Counts the sent datagrams. Returns their CPU time if sending is measured.
    fn note(&mut self, sent: &Sent) -> Duration {
        self.bytes = self.bytes.saturating_add(sent.bytes);
        self.datagrams = self.datagrams.saturating_add(sent.datagrams);
        if self.part == Part::Hearing {
            Duration::ZERO
        } else {
            sent.spent
        }
    }

    fn play(&mut self) {
        let players = self.players.iter_mut().zip(&mut self.pads).zip(0..);
        for ((player, pad), peer) in players {
            if self.whims.chance(25_000) {
                *pad ^= 1 << self.whims.below(12);
            }
            player.submit(self.now, pad).ok();
            player.handle_timeout(self.now);
            while player.poll_turn(self.now).is_some() {}
            while player.poll_event().is_some() {}
            while player.poll_transmit(self.now, &mut self.buf).is_some() {
                let arrival = Arrival::from(PeerId(peer));
                self.server
                    .handle_datagram(self.now, arrival, &mut self.buf);
                self.buf.clear();
            }
        }
    }

    /// A quarter of the spectators acknowledges in each tick.
    fn hear(&mut self) -> Duration {
        let closed = self.server.ticks_closed();
        let [_, _, high, low] = closed.saturating_sub(self.age).to_be_bytes();
        let spectators = self.spectators;
        let speakers = (closed % 4..spectators).step_by(4);
        let word = [0x02, high, low, 0x70];
        let Self {
            server, now, seal, ..
        } = self;
        let spent = if let Some(seal) = seal {
            seal.hear(*now, server, (speakers, word))
        } else {
            cpu_time_of(|| {
                for peer in speakers {
                    let arrival = Arrival::from(PeerId(SPECTATORS + peer));
                    server.handle_datagram(*now, arrival, &mut word.clone());
                }
            })
        };
        if self.part == Part::Sending {
            Duration::ZERO
        } else {
            spent
        }
    }
}

impl Case for SpectatorBench {
    /// Closes `count` ticks.
    fn run(&mut self, count: u32) -> Duration {
        (0..count).map(|_| self.turn()).sum()
    }
}
