//! Two players, a server, a faulty network and an attacker that replays packets.

use core::time::Duration;
use std::collections::BTreeSet;

use netsim::{Adversary, Datagram, Handle, Host, LinkConfig, TapId};
use udp_proto::{
    ChannelConfig, ChannelId, ChannelTable, CloseCode, Config, Delivery, Event, KeyLimits, Listen,
    SendError, SessionId, SessionStats,
};
use wire::{Generator, Seed};

use super::events::Nat;
use super::faults::{Axis, Row, bad_link};
use crate::harness::{INSTANCE, Log, Peer, SERVER, Testbed, address, server_host};

/// Number of messages that one end has sent over one session, by channel.
type Ledger = [u32; 4];

/// One channel of each kind, in the order of their codes.
fn channels() -> [ChannelConfig; 4] {
    [
        ChannelConfig::unreliable(),
        ChannelConfig::sequenced(),
        ChannelConfig::reliable_unordered(),
        ChannelConfig::reliable_ordered(),
    ]
}

fn config(limits: KeyLimits, row: Option<Row>) -> Config {
    let mut config = Config::default();
    config.channels = ChannelTable::new(&channels()).unwrap();
    config.key_limits = limits;
    if let Some(row) = row {
        row.shape(&mut config);
    }
    config
}

/// One client of the storm, with the messages that it and the server have sent.
pub(super) struct Player {
    pub(super) client: Handle<Peer>,
    pub(super) session: SessionId,
    pub(super) nat: Option<Nat>,
    up: Ledger,
    down: Ledger,
}

/// Direction: from the client to the server, or back.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    Up,
    Down,
}

pub(super) struct Storm {
    pub(super) testbed: Testbed,
    pub(super) players: Vec<Player>,
    pub(super) generator: Generator,
    /// Faults of the run; `None` if each link is drawn independently.
    pub(super) row: Option<Row>,
    pub(super) adversary: Adversary,
    tap: TapId,
}

/// Message `number` of its channel, with padding if it is long.
fn numbered(number: u32, len: usize) -> Vec<u8> {
    let mut message = vec![u8::try_from(number % 251).unwrap(); len.max(4)];
    message[..4].copy_from_slice(&number.to_be_bytes());
    message
}

fn number_of(message: &[u8]) -> u32 {
    let number = u32::from_be_bytes(message[..4].try_into().unwrap());
    assert_eq!(
        message,
        numbered(number, message.len()),
        "bytes are as sent"
    );
    number
}

impl Storm {
    pub(super) fn new(seed: Seed) -> Self {
        Self::with(seed, KeyLimits::default(), None)
    }

    pub(super) fn with(seed: Seed, limits: KeyLimits, row: Option<Row>) -> Self {
        let config = config(limits, row);
        let mut testbed = Testbed::with(seed, config.clone(), |listen: Listen| listen);
        let mut generator = testbed.world.generator(1);
        let keys = &testbed.keys;
        let quiet = |now| {
            let config = (config.clone(), INSTANCE);
            let host = server_host(seed, config, keys, |listen| listen, now);
            Host::new(host.machine, Log::default())
        };
        testbed.world.restart(testbed.server, quiet);
        let drift = i32::try_from(generator.below(400)).unwrap() - 200;
        if row.is_none_or(|row| row.level(Axis::Clock) > 0) {
            testbed.world.set_clock_drift(testbed.server, drift);
        }
        let tap = testbed.world.tap_all(2_000);
        let players = (1..=2)
            .map(|player| {
                let client = testbed.client_with(config.clone());
                for pair in [
                    (client.index(), testbed.server.index()),
                    (testbed.server.index(), client.index()),
                ] {
                    let link = match row {
                        Some(row) => row.link(&mut generator),
                        None => bad_link(&mut generator),
                    };
                    testbed.world.set_link(pair.0, pair.1, link);
                }
                let unix = testbed.world.unix_now();
                let credentials = testbed.keys.token(unix, player, address(SERVER));
                let nat = row
                    .filter(|row| row.level(Axis::Nat) > 0)
                    .map(|_| Nat::before(&mut testbed, client, player));
                let session = testbed.dial(client, credentials);
                Player {
                    client,
                    session,
                    nat,
                    up: [0; 4],
                    down: [0; 4],
                }
            })
            .collect();
        Self {
            adversary: Adversary::new(tap, testbed.world.generator(2)),
            testbed,
            players,
            generator,
            row,
            tap,
        }
    }

    /// The server's session with a player.
    pub(super) fn theirs(&self, player: usize) -> Option<SessionId> {
        let events = &self.testbed.log(self.testbed.server).events;
        events.iter().find_map(|event| match event {
            Event::Connected { session, peer } => match &peer.proof {
                udp_proto::Proof::Token(grant)
                    if usize::try_from(grant.client_id.0) == Ok(player + 1) =>
                {
                    Some(*session)
                }
                _ => None,
            },
            _ => None,
        })
    }

    /// Statistics of each open session: the client's, then the server's.
    pub(super) fn open_sessions(&self) -> Vec<(SessionStats, SessionStats)> {
        let both = |(index, player): (usize, &Player)| {
            let client = &self.testbed.peer(player.client).machine;
            let server = &self.testbed.peer(self.testbed.server).machine;
            let theirs = server.session_stats(self.theirs(index)?)?;
            Some((client.session_stats(player.session)?, theirs))
        };
        self.players.iter().enumerate().filter_map(both).collect()
    }

    /// Sends one message of a random kind, if there is a session and room.
    pub(super) fn send_plaintext(&mut self, player: usize, way: Way) {
        let theirs = self.theirs(player);
        let Player {
            client,
            session,
            up,
            down,
            ..
        } = &mut self.players[player];
        let (from, session, ledger) = match (way, theirs) {
            (Way::Up, _) => (*client, *session, up),
            (Way::Down, Some(theirs)) => (self.testbed.server, theirs, down),
            (Way::Down, None) => return,
        };
        let channel = u8::try_from(self.generator.below(4)).unwrap();
        let longest = [80, 80, 80, 4_000][usize::try_from(self.generator.below(4)).unwrap()];
        let len = usize::try_from(self.generator.below(longest)).unwrap();
        let count = &mut ledger[usize::from(channel)];
        let message = numbered(*count, len);
        let sent = self.testbed.world.apply(from, |host, now| {
            host.machine
                .send(now, session, ChannelId(channel), &message)
        });
        match sent {
            Ok(()) => *count += 1,
            Err(SendError::Full | SendError::Closed) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// The tap on every path.
    pub(super) const fn tap(&self) -> TapId {
        self.tap
    }

    /// Replays a recorded packet.
    pub(super) fn replay(&mut self) {
        let captured = self.testbed.world.captured(self.tap);
        let count = u64::try_from(captured.len()).unwrap();
        if count == 0 {
            return;
        }
        let index = usize::try_from(self.generator.below(count)).unwrap();
        let Datagram {
            source,
            destination,
            bytes,
            ..
        } = captured[index].datagram.clone();
        let delay = Duration::from_millis(self.generator.below(3_000));
        let datagram = Datagram::new(source, destination, bytes);
        self.testbed.world.inject(delay, datagram);
    }

    fn weather(&mut self) {
        for step in 0..120 {
            for player in 0..self.players.len() {
                self.send_plaintext(player, Way::Up);
                self.send_plaintext(player, Way::Down);
            }
            if let Some(row) = self.row {
                self.suffer(row, step);
            } else {
                for _ in 0..4 {
                    self.replay();
                }
                if self.generator.chance(10_000) {
                    let span = Duration::from_millis(self.generator.below(2_000));
                    self.testbed.world.stall(self.testbed.server, span);
                }
            }
            let pause = self.generator.below(60);
            self.testbed.run(pause);
        }
    }

    /// Ends all faults, for long enough that lost messages are retransmitted.
    fn clear_up(&mut self) {
        for index in 0..self.players.len() {
            let client = self.players[index].client;
            let link = LinkConfig::default().with_delay(Duration::from_millis(10));
            self.testbed
                .world
                .set_links(client, self.testbed.server, link);
        }
        self.testbed.run(20_000);
    }

    fn close(&mut self) {
        for index in 0..self.players.len() {
            let Player {
                client, session, ..
            } = self.players[index];
            self.testbed.world.apply(client, |host, now| {
                // The session may have ended already.
                let _result = host.machine.close(now, session, CloseCode::App, b"");
            });
        }
        self.testbed.run(15_000);
    }

    /// Checks M1, M2 and R2 for one direction of one session; returns how many reliable messages
    /// arrived, unordered and ordered.
    fn check(log: &Log, session: SessionId, sent: &Ledger) -> [u32; 2] {
        let mut reliable = [0; 2];
        for ((id, row), sent) in (0..).zip(channels()).zip(sent) {
            let numbers: Vec<u32> = log
                .messages
                .iter()
                .filter(|(from, by, _)| *from == session && *by == ChannelId(id))
                .map(|(.., message)| number_of(message))
                .collect();
            let distinct: BTreeSet<_> = numbers.iter().copied().collect();
            assert_eq!(distinct.len(), numbers.len(), "one came twice");
            assert!(distinct.last().is_none_or(|last| last < sent));
            let count = u32::try_from(numbers.len()).unwrap();
            match row.delivery {
                Delivery::Sequenced => assert!(numbers.is_sorted(), "{numbers:?}"),
                Delivery::ReliableUnordered => reliable[0] = count,
                Delivery::ReliableOrdered => {
                    assert_eq!(numbers, (0..count).collect::<Vec<_>>());
                    reliable[1] = count;
                }
                _ => {}
            }
        }
        reliable
    }

    fn check_deliveries(&self) {
        for (index, player) in self.players.iter().enumerate() {
            let client = self.testbed.log(player.client);
            let server = self.testbed.log(self.testbed.server);
            let is_alive = client.closes().is_empty() && client.failures().is_empty();
            let Some(theirs) = self.theirs(index) else {
                assert!(server.messages.is_empty() || self.players.len() > 1);
                continue;
            };
            let is_whole = is_alive && !server.closes().iter().any(|(id, _)| *id == theirs);
            let up = Self::check(server, theirs, &player.up);
            let down = Self::check(client, player.session, &player.down);
            if is_whole {
                assert_eq!(
                    (up, down),
                    (
                        player.up[2..].try_into().unwrap(),
                        player.down[2..].try_into().unwrap()
                    )
                );
            }
        }
    }

    /// T6: each session has one Connected, one Closed after it, and no later event.
    fn check_events(&self) {
        let clients = self.players.iter().map(|player| player.client);
        for handle in clients.chain([self.testbed.server]) {
            let mut open = BTreeSet::new();
            let mut over = BTreeSet::new();
            for event in &self.testbed.log(handle).events {
                match event {
                    Event::Connected { session, .. } => {
                        assert!(
                            open.insert(*session) && !over.contains(session),
                            "{event:?}"
                        );
                    }
                    Event::Closed { session, .. } => {
                        assert!(open.remove(session) && over.insert(*session), "{event:?}");
                    }
                    Event::ConnectFailed { session, .. } => {
                        assert!(
                            !open.contains(session) && over.insert(*session),
                            "{event:?}"
                        );
                    }
                    // Many of these paths lose more than a fifth.
                    Event::RateChanged { session, .. }
                    | Event::AddressChanged { session, .. }
                    | Event::MtuChecked { session, .. } => {
                        assert!(open.contains(session), "{event:?}");
                    }
                    _ => panic!("{event:?}"),
                }
            }
            assert!(open.is_empty(), "sessions without an end: {open:?}");
            assert_eq!(self.testbed.peer(handle).machine.session_count(), 0);
        }
    }

    pub(super) fn run(seed: Seed) -> Self {
        Self::run_with(seed, KeyLimits::default(), |_| {})
    }

    /// Runs one row of the fault matrix.
    pub(super) fn run_row(seed: Seed, row: Row, look: impl FnOnce(&Self)) -> Self {
        Self::with(seed, KeyLimits::default(), Some(row)).pass(look)
    }

    /// As [`run`](Self::run), with `look` called before the sessions end.
    pub(super) fn run_with(seed: Seed, limits: KeyLimits, look: impl FnOnce(&Self)) -> Self {
        Self::with(seed, limits, None).pass(look)
    }

    fn pass(mut self, look: impl FnOnce(&Self)) -> Self {
        self.weather();
        self.clear_up();
        self.check_deliveries();
        look(&self);
        self.close();
        self.check_deliveries();
        self.check_events();
        self
    }
}
