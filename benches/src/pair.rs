//! Two endpoints in memory with one session between them, run like a game loop.

use core::net::SocketAddr;
use core::time::Duration;

use crypto::{Identity, Ring};
use udp_proto::{
    AppId, ChannelId, Config, Credentials, Endpoint, Event, Listen, ServerIdentity, SessionId,
    Target,
};
use wire::{Arrival, InstanceId, Instant, UnixTime};

/// Bytes of the message that each side sends per tick.
pub const MESSAGE_LEN: usize = 100;
/// The default table's unreliable channel.
pub const UNRELIABLE: ChannelId = ChannelId(0);
/// The default table's reliable, ordered channel.
pub const RELIABLE: ChannelId = ChannelId(1);
/// The app id of all benches.
pub const APP: AppId = AppId(0x0062_656e_6368);
/// The server's instance id.
pub const INSTANCE: InstanceId = InstanceId(0x1122_3344_5566_7788);
/// The wall clock at [`Instant::ZERO`].
pub const START: UnixTime = UnixTime::from_secs(1_800_000_000);

/// Half a tick of 60 Hz: the one-way delay.
const HALF_TICK: Duration = Duration::from_nanos(8_333_333);

/// Datagrams in flight to one side, in a reused buffer.
#[derive(Debug, Default)]
pub struct Lane {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Lane {
    /// Takes all datagrams that `endpoint` has to send.
    pub fn drain(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>) {
        while endpoint.poll_transmit(now, &mut self.bytes).is_some() {
            self.ends.push(self.bytes.len());
        }
    }

    /// Delivers all datagrams to `endpoint`, with `sender` as their source.
    pub fn deliver(&mut self, now: Instant, sender: SocketAddr, endpoint: &mut Endpoint<Ring>) {
        let mut start = 0;
        for end in self.ends.drain(..) {
            if let Some(datagram) = self.bytes.get_mut(start..end) {
                endpoint.handle_datagram(now, Arrival::from(sender), datagram);
            }
            start = end;
        }
        self.bytes.clear();
    }

    /// Returns the number of datagrams and bytes in flight.
    #[must_use]
    pub const fn held(&self) -> (usize, usize) {
        (self.ends.len(), self.bytes.len())
    }
}

/// One endpoint and its application state.
pub struct Side {
    /// The machine.
    pub endpoint: Endpoint<Ring>,
    /// Its address.
    pub address: SocketAddr,
    /// Its session, while one is open.
    pub session: Option<SessionId>,
    /// Messages received.
    pub received: u64,
    message: Vec<u8>,
}

impl Side {
    /// Creates an endpoint of [`APP`] at `address`.
    #[must_use]
    pub fn new(address: &str, config: Config) -> Self {
        let mut endpoint = Endpoint::new(config, APP, Ring::new(), Instant::ZERO).expect("entropy");
        endpoint.set_unix_time(Instant::ZERO, START);
        Self {
            endpoint,
            address: address.parse().expect("an address"),
            session: None,
            received: 0,
            message: Vec::new(),
        }
    }

    /// Creates an endpoint which listens in open mode. Returns the identity that clients pin, too.
    #[must_use]
    pub fn listening(address: &str, config: Config) -> (Self, ServerIdentity) {
        let mut side = Self::new(address, config);
        let identity = Identity::generate(&mut Ring::new()).expect("entropy");
        let pinned = ServerIdentity::Keys(vec![*identity.public_key()]);
        let listen = Listen::new(identity, INSTANCE).with_open_mode();
        side.endpoint
            .listen(Instant::ZERO, listen)
            .expect("entropy");
        (side, pinned)
    }

    /// Runs due timers, and handles events and messages.
    pub fn settle(&mut self, now: Instant) {
        if self.endpoint.poll_timeout().is_some_and(|at| at <= now) {
            self.endpoint.handle_timeout(now);
        }
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Connected { session, .. } => self.session = Some(session),
                Event::Closed { .. } | Event::ConnectFailed { .. } => self.session = None,
                Event::Readable { session } => {
                    while self
                        .endpoint
                        .receive(now, session, &mut self.message)
                        .is_some()
                    {
                        self.received += 1;
                        self.message.clear();
                    }
                }
                Event::MtuChecked { .. } | Event::Settled { .. } | _ => {}
            }
        }
    }
}

impl core::fmt::Debug for Side {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Side")
            .field("address", &self.address)
            .field("received", &self.received)
            .finish_non_exhaustive()
    }
}

/// A client and a server with a session. In each tick, each sends one message to the other.
#[derive(Debug)]
pub struct Pair {
    client: Side,
    server: Side,
    to_server: Lane,
    to_client: Lane,
    channel: ChannelId,
    now: Instant,
    message: [u8; MESSAGE_LEN],
    ticks: u64,
    datagrams: u64,
    bytes: u64,
}

impl Pair {
    /// Connects, and runs 1,000 ticks as a warm-up.
    #[must_use]
    pub fn new(channel: ChannelId) -> Self {
        let (server, pinned) = Side::listening("192.0.2.1:7777", Config::default());
        let mut client = Side::new("198.51.100.1:4000", Config::default());
        let target = Target {
            addresses: vec![server.address],
            server: pinned,
            credentials: Credentials::Open,
        };
        client
            .endpoint
            .connect(Instant::ZERO, target)
            .expect("a target that is allowed");
        let mut pair = Self {
            client,
            server,
            to_server: Lane::default(),
            to_client: Lane::default(),
            channel,
            now: Instant::ZERO,
            message: [0x5A; MESSAGE_LEN],
            ticks: 0,
            datagrams: 0,
            bytes: 0,
        };
        (0..1_000).for_each(|_| pair.tick());
        assert!(pair.server.received > 900, "the session works");
        (pair.ticks, pair.datagrams, pair.bytes) = (0, 0, 0);
        (pair.client.received, pair.server.received) = (0, 0);
        pair
    }

    /// Runs a game frame on each side: receive datagrams, run timers, read, send.
    pub fn tick(&mut self) {
        turn(
            (self.now, self.channel, &self.message),
            &mut self.client,
            self.server.address,
            (&mut self.to_client, &mut self.to_server),
        );
        self.now += HALF_TICK;
        self.count();
        turn(
            (self.now, self.channel, &self.message),
            &mut self.server,
            self.client.address,
            (&mut self.to_server, &mut self.to_client),
        );
        self.now += HALF_TICK;
        self.count();
        self.ticks += 1;
        // A key seals at most 2^23 packets, and a closed session would cost nothing.
        assert!(
            self.ticks < 10 || self.client.session.is_some(),
            "the session is over"
        );
    }

    /// Returns datagrams and bytes per tick since the warm-up.
    ///
    /// # Panics
    ///
    /// If messages were lost, because nothing here loses any.
    #[must_use]
    pub fn per_tick(&self) -> (f64, f64) {
        let sent = self.ticks * 2;
        let received = self.client.received + self.server.received;
        assert!(received + 2 >= sent, "{received} of {sent} messages came");
        (
            ratio(self.datagrams, self.ticks),
            ratio(self.bytes, self.ticks),
        )
    }

    /// Counts the new datagrams in flight. One lane is empty after each half.
    fn count(&mut self) {
        for lane in [&self.to_server, &self.to_client] {
            let (datagrams, bytes) = lane.held();
            self.datagrams += datagrams as u64;
            self.bytes += bytes as u64;
        }
    }
}

/// Runs one frame of one side.
fn turn(
    (now, channel, message): (Instant, ChannelId, &[u8; MESSAGE_LEN]),
    side: &mut Side,
    sender: SocketAddr,
    (inbound, outbound): (&mut Lane, &mut Lane),
) {
    inbound.deliver(now, sender, &mut side.endpoint);
    side.settle(now);
    if let Some(session) = side.session {
        side.endpoint
            .send(now, session, channel, message)
            .expect("the queue has room: all that was sent has come");
    }
    outbound.drain(now, &mut side.endpoint);
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn ratio(a: u64, b: u64) -> f64 {
    a as f64 / b as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_arrives_and_no_ack_takes_a_packet_of_its_own() {
        for channel in [UNRELIABLE, RELIABLE] {
            let mut pair = Pair::new(channel);
            (0..1_000).for_each(|_| pair.tick());
            let (datagrams, bytes) = pair.per_tick();
            assert!(datagrams < 2.1, "{datagrams} datagrams a tick");
            assert!(bytes < 2.1 * 150.0, "{bytes} bytes a tick");
        }
    }
}
