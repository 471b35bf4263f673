//! A server and clients in a virtual world.

use core::net::SocketAddr;
use core::time::Duration;

use crypto::token::{TokenGrant, TokenKey, UserData};
use crypto::{AddressList, Identity, Provider, PublicKey, Secret32};
use netsim::provider::SimProvider;
use netsim::{App, Handle, Host, World};
use udp_proto::{
    AppId, ChannelId, Config, Credentials, Endpoint, Event, Listen, ServerIdentity, SessionId,
    Target,
};
use wire::{ClientId, InstanceId, Instant, MatchId, Seat, Seed, Team, UnixTime};

pub(crate) const APP: AppId = AppId(0x7469_636b);
pub(crate) const INSTANCE: InstanceId = InstanceId(0x1122_3344_5566_7788);
pub(crate) const UNRELIABLE: ChannelId = ChannelId(0);
pub(crate) const RELIABLE: ChannelId = ChannelId(1);

/// The provider of an application: ring, or pure Rust if the crate is built without ring.
#[cfg(feature = "ring")]
pub(crate) use crypto::Ring as Native;
#[cfg(not(feature = "ring"))]
pub(crate) use crypto::RustCrypto as Native;

pub(crate) type Peer<P = SimProvider> = Host<Endpoint<P>, Log>;

/// Records events and messages, and echoes messages if configured.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) is_echo: bool,
    pub(crate) events: Vec<Event>,
    pub(crate) messages: Vec<(SessionId, ChannelId, Vec<u8>)>,
    /// The time and kind of each record.
    pub(crate) reported: Vec<(Instant, LogEntry)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogEntry {
    /// The next of [`Log::events`].
    Event,
    /// The next of [`Log::messages`].
    Message,
}

impl<P: Provider> App<Endpoint<P>> for Log {
    fn on_event(&mut self, now: Instant, machine: &mut Endpoint<P>, event: Event) {
        if let Event::Readable { session } = event {
            let mut message = Vec::new();
            while let Some(channel) = machine.receive(now, session, &mut message) {
                if self.is_echo {
                    // A full queue is for the test to check.
                    machine.send(now, session, channel, &message).ok();
                }
                self.messages
                    .push((session, channel, core::mem::take(&mut message)));
                self.reported.push((now, LogEntry::Message));
            }
            return;
        }
        self.events.push(event);
        self.reported.push((now, LogEntry::Event));
    }
}

impl Log {
    pub(crate) fn sessions(&self) -> Vec<SessionId> {
        self.events
            .iter()
            .filter_map(|event| match event {
                Event::Connected { session, .. } => Some(*session),
                _ => None,
            })
            .collect()
    }

    pub(crate) fn closes(&self) -> Vec<(SessionId, udp_proto::CloseReason)> {
        self.events
            .iter()
            .filter_map(|event| match event {
                Event::Closed {
                    session, reason, ..
                } => Some((*session, *reason)),
                _ => None,
            })
            .collect()
    }

    pub(crate) fn failures(&self) -> Vec<udp_proto::ConnectFailure> {
        self.events
            .iter()
            .filter_map(|event| match event {
                Event::ConnectFailed { failure, .. } => Some(*failure),
                _ => None,
            })
            .collect()
    }
}

/// Whether a simulation runs its default seeds; only then may it assert sums over them.
pub(crate) fn runs_its_own_seeds() -> bool {
    let is_set = |name: &&str| std::env::var_os(name).is_some();
    !["SEED", "SEEDS", "FROM"].iter().any(is_set)
}

pub(crate) fn address(text: &str) -> SocketAddr {
    text.parse().expect("a test's own address")
}

/// The matchmaker's keys and the server's identity.
pub(crate) struct Keys {
    pub(crate) identity: Identity,
    pub(crate) token_key: TokenKey,
    provider: SimProvider,
}

impl Keys {
    pub(crate) fn new(seed: Seed) -> Self {
        let mut provider = SimProvider::new(seed.generator(900).seed());
        Self {
            identity: Identity::generate(&mut provider).expect("seeded"),
            token_key: TokenKey::generate(&mut provider, 1).expect("seeded"),
            provider,
        }
    }

    /// Draws the next tokens from another seed.
    pub(crate) fn reseed(&mut self, seed: Seed) {
        self.provider = SimProvider::new(seed);
    }

    pub(crate) fn identity(&self) -> Identity {
        Identity::from_pem(&self.identity.to_pem()).expect("its own PEM")
    }

    pub(crate) fn public(&self) -> PublicKey {
        *self.identity.public_key()
    }

    /// A token for `client`, issued at `now`, and its PSK.
    pub(crate) fn token(&mut self, now: UnixTime, client: u64, server: SocketAddr) -> Credentials {
        self.token_for(
            now,
            now + Duration::from_secs(60),
            client,
            (INSTANCE, server),
        )
    }

    pub(crate) fn token_for(
        &mut self,
        issued_at: UnixTime,
        expires_at: UnixTime,
        client: u64,
        (server_id, server): (InstanceId, SocketAddr),
    ) -> Credentials {
        let psk = Secret32::random(&mut self.provider).expect("seeded");
        let grant = TokenGrant {
            issued_at,
            expires_at,
            client_id: ClientId(client),
            psk: psk.clone(),
            server_id,
            addresses: AddressList::new(&[server]).expect("one address"),
            match_id: MatchId([7; 16]),
            seat: Seat(3),
            team: Team(1),
            user: UserData::new(b"hat=red").expect("short"),
        };
        let token = self
            .token_key
            .seal(&mut self.provider, APP.0, &grant)
            .expect("a lifetime that is allowed");
        Credentials::Token {
            token: token.as_bytes().to_vec(),
            psk,
        }
    }
}

pub(crate) fn endpoint(seed: Seed, config: Config, now: Instant) -> Endpoint<SimProvider> {
    Endpoint::new(config, APP, SimProvider::new(seed), now).expect("seeded")
}

/// A world with an echo server.
pub(crate) struct Testbed {
    pub(crate) world: World,
    pub(crate) keys: Keys,
    pub(crate) server: Handle<Peer>,
    pub(crate) seed: Seed,
    next_client: u16,
}

pub(crate) const SERVER: &str = "198.51.100.1:7777";

impl Testbed {
    pub(crate) fn new(seed: Seed) -> Self {
        Self::with(seed, Config::default(), |listen| listen)
    }

    pub(crate) fn with(
        seed: Seed,
        config: Config,
        shape: impl Fn(Listen) -> Listen + 'static,
    ) -> Self {
        let mut world = World::new(seed);
        let keys = Keys::new(seed);
        let server = world.add(address(SERVER), |now| {
            server_host(seed, (config, INSTANCE), &keys, shape, now)
        });
        Self {
            world,
            keys,
            server,
            seed,
            next_client: 1,
        }
    }

    /// Adds a client with an address of its own.
    pub(crate) fn client(&mut self) -> Handle<Peer> {
        self.client_with(Config::default())
    }

    pub(crate) fn client_with(&mut self, config: Config) -> Handle<Peer> {
        let number = self.next_client;
        self.next_client += 1;
        let [high, low] = number.to_be_bytes();
        let at = SocketAddr::from(([203, high, low, 9], 4_000));
        let seed = self.seed.generator(1_000 + u64::from(number)).seed();
        self.world.add(at, |now| {
            Host::new(endpoint(seed, config, now), Log::default())
        })
    }

    /// Has `client` dial the server.
    pub(crate) fn dial(&mut self, client: Handle<Peer>, credentials: Credentials) -> SessionId {
        let target = self.target(credentials);
        self.world
            .apply(client, |host, now| host.machine.connect(now, target))
            .expect("a target that is allowed")
    }

    pub(crate) fn target(&self, credentials: Credentials) -> Target {
        Target {
            addresses: vec![address(SERVER)],
            server: ServerIdentity::Keys(vec![self.keys.public()]),
            credentials,
        }
    }

    /// Adds a client that dials with a token of its own.
    pub(crate) fn join(&mut self, player: u64) -> (Handle<Peer>, SessionId) {
        self.join_with(player, Config::default())
    }

    /// The same with a configuration of its own.
    pub(crate) fn join_with(&mut self, player: u64, config: Config) -> (Handle<Peer>, SessionId) {
        let client = self.client_with(config);
        let unix = self.world.unix_now();
        let credentials = self.keys.token(unix, player, address(SERVER));
        let session = self.dial(client, credentials);
        (client, session)
    }

    pub(crate) fn send(
        &mut self,
        from: Handle<Peer>,
        session: SessionId,
        channel: ChannelId,
        message: &[u8],
    ) {
        self.world.apply(from, |host, now| {
            host.machine
                .send(now, session, channel, message)
                .expect("a message that fits");
        });
    }

    pub(crate) fn peer(&self, handle: Handle<Peer>) -> &Peer {
        self.world.get(handle).expect("alive")
    }

    pub(crate) fn log(&self, handle: Handle<Peer>) -> &Log {
        &self.peer(handle).app
    }

    pub(crate) fn run(&mut self, millis: u64) {
        self.world.run_for(Duration::from_millis(millis));
    }
}

pub(crate) fn server_host(
    seed: Seed,
    (config, instance): (Config, InstanceId),
    keys: &Keys,
    shape: impl Fn(Listen) -> Listen,
    now: Instant,
) -> Peer {
    let mut machine = endpoint(seed.generator(instance.0 | 1 << 63).seed(), config, now);
    let listen = shape(Listen::new(keys.identity(), instance));
    machine.listen(now, listen).expect("seeded");
    machine.add_token_key(keys.token_key.clone());
    let app = Log {
        is_echo: true,
        ..Log::default()
    };
    Host::new(machine, app)
}
