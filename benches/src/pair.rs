//! Two endpoints in memory, with one session between them, driven as a game loop drives them.

use core::net::SocketAddr;
use core::time::Duration;

use crypto::{Identity, Ring};
use udp_proto::{
    AppId, ChannelId, Config, Credentials, Endpoint, Event, Listen, ServerIdentity, SessionId,
    Target,
};
use wire::{Arrival, InstanceId, Instant, UnixTime};

/// Bytes in the message that each side sends each tick.
pub const MESSAGE_LEN: usize = 100;
/// The channel of the default table that repeats nothing.
pub const UNRELIABLE: ChannelId = ChannelId(0);
/// The channel of the default table that repeats and orders.
pub const RELIABLE: ChannelId = ChannelId(1);
/// The application that all benches are of.
pub const APP: AppId = AppId(0x0062_656e_6368);
/// The run of the server.
pub const INSTANCE: InstanceId = InstanceId(0x1122_3344_5566_7788);
/// The wall clock at [`Instant::ZERO`].
pub const START: UnixTime = UnixTime::from_secs(1_800_000_000);

/// Half a tick of 60 Hz: what one side sends, the other gets so much later.
const HALF_TICK: Duration = Duration::from_nanos(8_333_333);

/// Datagrams under way to one side, in one buffer that is used again.
#[derive(Debug, Default)]
pub struct Lane {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Lane {
    /// Takes all that `endpoint` has to send.
    pub fn drain(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>) {
        while endpoint.poll_transmit(now, &mut self.bytes).is_some() {
            self.ends.push(self.bytes.len());
        }
    }

    /// Hands everything to `endpoint`, as from `sender`.
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

    /// Returns how many datagrams and bytes are under way.
    #[must_use]
    pub const fn held(&self) -> (usize, usize) {
        (self.ends.len(), self.bytes.len())
    }
}

/// One endpoint, and what its application keeps.
pub struct Side {
    /// The machine.
    pub endpoint: Endpoint<Ring>,
    /// Where it is.
    pub address: SocketAddr,
    /// Its session, while one is open.
    pub session: Option<SessionId>,
    /// Messages received.
    pub received: u64,
    message: Vec<u8>,
}

impl Side {
    /// Makes an endpoint of [`APP`] at `address`.
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

    /// Makes one that listens in open mode, and returns what its clients pin.
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

    /// Runs timers that are due, and takes events and messages.
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

/// A client and a server with a session; each tick, each sends one message to the other.
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
    /// Connects, and runs 1,000 ticks to be warm.
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

    /// Lets each side do what a frame of a game does: take datagrams, run timers, read, send.
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
        // A key seals 2^23 packets, and a session that is over would cost nothing.
        assert!(
            self.ticks < 10 || self.client.session.is_some(),
            "the session is over"
        );
    }

    /// Returns datagrams and bytes for each tick, since the pair is warm.
    ///
    /// # Panics
    ///
    /// Where messages were lost: nothing loses any here.
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

    /// Counts what is newly under way: one lane is empty after each half.
    fn count(&mut self) {
        for lane in [&self.to_server, &self.to_client] {
            let (datagrams, bytes) = lane.held();
            self.datagrams += datagrams as u64;
            self.bytes += bytes as u64;
        }
    }
}

/// One frame of one side.
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
    fn every_message_comes_and_none_has_a_packet_of_its_own_acknowledgement() {
        for channel in [UNRELIABLE, RELIABLE] {
            let mut pair = Pair::new(channel);
            (0..1_000).for_each(|_| pair.tick());
            let (datagrams, bytes) = pair.per_tick();
            assert!(datagrams < 2.1, "{datagrams} datagrams a tick");
            assert!(bytes < 2.1 * 150.0, "{bytes} bytes a tick");
        }
    }
}
