//! A server and clients that send to it, each over its own path or all over one.

use core::time::Duration;

use netsim::{Handle, LinkConfig};
use udp_proto::{ChannelConfig, ChannelId, ChannelTable, Config, Listen, SessionId, SessionStats};
use wire::{Instant, Seed};

use crate::harness::{Peer, SERVER, Testbed, address};

/// The game's channel.
pub(super) const GAME: ChannelId = ChannelId(0);
/// Second priority.
pub(super) const RELIABLE: ChannelId = ChannelId(1);
pub(super) const BULK: ChannelId = ChannelId(2);
/// Data bytes of one bulk message, which fills a packet.
pub(super) const BULK_LEN: usize = 1_150;

/// The default configuration with a channel for bulk.
pub(super) fn config() -> Config {
    let mut config = Config::default();
    config.channels = ChannelTable::new(&[
        ChannelConfig::unreliable(),
        ChannelConfig::reliable_ordered(),
        ChannelConfig::bulk(),
    ])
    .unwrap();
    config
}

/// Clients that send, a listening server, and the times of arrivals.
pub(super) struct Lane {
    pub(super) testbed: Testbed,
    pub(super) clients: Vec<(Handle<Peer>, SessionId)>,
    /// Received messages: session, channel, send time, arrival time.
    pub(super) came: Vec<(SessionId, ChannelId, Instant, Instant)>,
    /// Data bytes of one bulk message.
    pub(super) bulk_len: usize,
    seen: usize,
}

impl Lane {
    /// Clients with a path of their own each: `up` to the server and `down` to the client.
    pub(super) fn new(seed: u64, count: u64, config: &Config, [up, down]: [LinkConfig; 2]) -> Self {
        let mut testbed =
            Testbed::with(Seed::from_number(seed), config.clone(), |listen: Listen| {
                listen
            });
        let server = testbed.server;
        testbed
            .world
            .apply(server, |host, _| host.app.is_echo = false);
        // One path, or one for each client, set before the first HELLO.
        testbed.world.set_default_link(down);
        let clients = (1..=count)
            .map(|player| {
                let client = testbed.client_with(config.clone());
                testbed.world.set_link(client, server, up);
                let unix = testbed.world.unix_now();
                let credentials = testbed.keys.token(unix, player, address(SERVER));
                (client, testbed.dial(client, credentials))
            })
            .collect();
        testbed.run(1_500);
        Self {
            testbed,
            clients,
            came: Vec::new(),
            bulk_len: BULK_LEN,
            seen: 0,
        }
    }

    /// Replaces the path of all clients.
    pub(super) fn set_path(&mut self, up: LinkConfig, down: LinkConfig) {
        let server = self.testbed.server;
        for (client, _) in &self.clients {
            self.testbed.world.set_link(*client, server, up);
            self.testbed.world.set_link(server, *client, down);
        }
    }

    /// Adds a client with a configuration of its own.
    pub(super) fn add_client(&mut self, player: u64, config: Config) {
        let (client, session) = self.testbed.join_with(player, config);
        self.clients.push((client, session));
        self.run(1_000, &[]);
    }

    /// Adds a session of the first client, on the same path.
    pub(super) fn add_session(&mut self, player: u64) {
        let client = self.clients[0].0;
        let unix = self.testbed.world.unix_now();
        let credentials = self.testbed.keys.token(unix, player, address(SERVER));
        let session = self.testbed.dial(client, credentials);
        self.clients.push((client, session));
        self.run(1_000, &[]);
    }

    /// Bytes of realtime messages that the first client may send now.
    pub(super) fn room(&mut self) -> u32 {
        let (client, session) = self.clients[0];
        let room = |host: &mut Peer, now| host.machine.realtime_room(now, session);
        self.testbed.world.apply(client, room).unwrap()
    }

    pub(super) fn now(&self) -> Instant {
        self.testbed.world.local_now(self.testbed.server)
    }

    /// Sends a message of `len` bytes that contains its send time; returns whether it was accepted.
    pub(super) fn send(&mut self, client: usize, channel: ChannelId, len: usize) -> bool {
        let (client, session) = self.clients[client];
        self.testbed.world.apply(client, |host, now| {
            let mut message = vec![0; len.max(8)];
            message[..8].copy_from_slice(&now.as_nanos().to_be_bytes());
            host.machine.send(now, session, channel, &message).is_ok()
        })
    }

    /// Advances by one millisecond.
    pub(super) fn step(&mut self) {
        self.testbed.run(1);
        let now = self.now();
        let messages = &self.testbed.log(self.testbed.server).messages;
        for (session, channel, message) in &messages[self.seen..] {
            let sent = u64::from_be_bytes(message[..8].try_into().unwrap());
            self.came
                .push((*session, *channel, Instant::from_nanos(sent), now));
        }
        self.seen = messages.len();
    }

    /// Sends bulk from `clients` for `millis`.
    pub(super) fn run(&mut self, millis: u64, clients: &[usize]) {
        for _ in 0..millis {
            self.push(clients);
            self.step();
        }
    }

    /// The same, with a game of 60 Hz and 100 bytes.
    pub(super) fn play(&mut self, millis: u64, clients: &[usize]) {
        for milli in 0..millis {
            self.push(clients);
            if milli % 16 == 0 {
                self.send(0, GAME, 100);
            }
            self.step();
        }
    }

    /// Fills the queues of `clients`.
    fn push(&mut self, clients: &[usize]) {
        for client in clients {
            while self.send(*client, BULK, self.bulk_len) {}
        }
    }

    /// Messages received on `channel` since `since`.
    pub(super) fn count(&self, channel: ChannelId, since: Instant) -> usize {
        self.came
            .iter()
            .filter(|(_, by, _, at)| *by == channel && *at >= since)
            .count()
    }

    /// The same for one client; sessions opened in client order.
    pub(super) fn count_of(&self, client: usize, channel: ChannelId, since: Instant) -> usize {
        let theirs = self.testbed.log(self.testbed.server).sessions()[client];
        self.came
            .iter()
            .filter(|(session, by, _, at)| *session == theirs && *by == channel && *at >= since)
            .count()
    }

    /// Delays of messages received on `channel` since `since`, shortest first.
    pub(super) fn ways(&self, channel: ChannelId, since: Instant) -> Vec<Duration> {
        let mut ways: Vec<Duration> = self
            .came
            .iter()
            .filter(|(_, by, _, at)| *by == channel && *at >= since)
            .map(|(_, _, sent, came)| came.saturating_since(*sent))
            .collect();
        ways.sort_unstable();
        ways
    }

    pub(super) fn stats(&self, client: usize) -> SessionStats {
        let (client, session) = self.clients[client];
        let machine = &self.testbed.peer(client).machine;
        machine.session_stats(session).unwrap()
    }
}

/// The given percentile of `sorted`.
pub(super) fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}
