//! Several endpoints behind one UDP port, each on its own thread.

use core::convert::Infallible;
use core::net::SocketAddr;
use core::num::NonZeroUsize;
use core::ops::ControlFlow;
use core::time::Duration;
use std::net::UdpSocket as PlainSocket;

use tickwire::RELIABLE;
use tickwire::crypto::token::TokenKey;
use tickwire::crypto::{AddressList, Identity, PublicKey, Ring, Secret32, TokenGrant, UserData};
use tickwire::servicer::{Application, Clock, Shards, SocketConfig, UdpServicer, UdpSocket};
use tickwire::udp_proto::{
    CidLen, Config, Credentials, Endpoint, Event, Listen, ServerIdentity, SessionId, Target,
};
use tickwire::wire::{
    Arrival, ClientId, CommandId, InstanceId, Instant, MatchId, Seat, Team, UnixTime,
};

use crate::exchange::{APP, address};

/// Wait timeout; no test passes because of it.
const LONG: Duration = Duration::from_secs(30);

const SHARDS: usize = 3;

#[test]
fn players_are_served_by_the_shard_of_their_token_from_any_address() {
    let host = GameHost::open();
    for round in 0..4 {
        for (place, key) in host.token_keys.iter().enumerate() {
            // The system chooses a socket by the player's port: seldom the right one.
            let mut player = Player::new();
            player.enter(host.target(&host.grant(key, place))).unwrap();
            assert_eq!(player.ask("who?"), format!("{place}: who?"));
            // A new port each time, as after NAT rebinding.
            for number in 0..5 {
                player.socket = PlainSocket::bind("127.0.0.1:0").unwrap();
                let text = format!("{round}, {number}");
                assert_eq!(player.ask(&text), format!("{place}: {text}"));
            }
        }
    }
    assert!(host.shards.passed_on() > 0);
    assert_eq!(host.shards.dropped(), 0);
    let turns = host.shards.handles().iter().map(|it| it.counters().turns);
    assert!(turns.min() > Some(0), "each has had something to do");
    assert_eq!(host.shards.shutdown(Duration::ZERO).len(), SHARDS);
}

#[test]
fn a_token_opens_one_session_on_any_shard() {
    let host = GameHost::open();
    let grant = host.grant(&host.token_keys[1], 1);
    let (mut first, mut others) = (Player::new(), [(); 2].map(|()| Player::new()));
    first.enter(host.target(&grant)).unwrap();
    for other in &mut others {
        assert!(other.enter(host.target(&grant)).is_none());
        assert_eq!(first.ask("still in?"), "1: still in?");
    }
}

/// A server of several shards.
struct GameHost {
    shards: Shards<()>,
    address: SocketAddr,
    key: PublicKey,
    token_keys: Vec<TokenKey>,
}

impl GameHost {
    fn open() -> Self {
        let identity = Identity::generate(&mut Ring::new()).unwrap();
        let ids = 1..=u32::try_from(SHARDS).unwrap();
        let token_keys: Vec<_> = ids
            .map(|id| TokenKey::generate(&mut Ring::new(), id).unwrap())
            .collect();
        let count = NonZeroUsize::new(SHARDS).unwrap();
        let any = address("127.0.0.1:0");
        let sockets = UdpSocket::bind_shards(any, &SocketConfig::default(), count).unwrap();
        let place = sockets[0].local_address();
        let shards = UdpServicer::named("shard").spawn_shards(sockets, |place| {
            let mut config = Config::for_server();
            config.cid_len = CidLen::Eight;
            let now = Clock::new().now();
            let mut endpoint = Endpoint::new(config, APP, Ring::new(), now).unwrap();
            let own = Identity::from_pem(&identity.to_pem()).unwrap();
            endpoint
                .listen(now, Listen::new(own, instance(place)))
                .unwrap();
            assert!(endpoint.add_token_key(token_keys[place].clone()));
            (endpoint, Answering(place))
        });
        Self {
            shards: shards.unwrap(),
            address: place,
            key: *identity.public_key(),
            token_keys,
        }
    }

    /// Credentials for one session with the shard at `place`.
    fn grant(&self, key: &TokenKey, place: usize) -> (Vec<u8>, Secret32) {
        let now = Clock::new().unix_time();
        let psk = Secret32::random(&mut Ring::new()).unwrap();
        let grant = TokenGrant {
            issued_at: now,
            expires_at: UnixTime::from_secs((now + LONG).as_secs()),
            client_id: ClientId(7),
            psk: psk.clone(),
            server_id: instance(place),
            addresses: AddressList::new(&[self.address]).unwrap(),
            match_id: MatchId([0; 16]),
            seat: Seat(0),
            team: Team(0),
            user: UserData::new(b"").unwrap(),
        };
        let token = key.seal(&mut Ring::new(), APP.0, &grant).unwrap();
        (token.as_bytes().to_vec(), psk)
    }

    /// A target with these credentials.
    fn target(&self, (token, psk): &(Vec<u8>, Secret32)) -> Target {
        Target {
            addresses: vec![self.address],
            server: ServerIdentity::Keys(vec![self.key]),
            credentials: Credentials::Token {
                token: token.clone(),
                psk: psk.clone(),
            },
        }
    }
}

fn instance(place: usize) -> InstanceId {
    InstanceId(100 + u64::try_from(place).unwrap())
}

/// Echoes messages with the number of its shard.
struct Answering(usize);

impl Application<Endpoint<Ring>> for Answering {
    type Request = ();

    fn apply_request(&mut self, _: Instant, _: &mut Endpoint<Ring>, (): ()) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, now: Instant, endpoint: &mut Endpoint<Ring>, event: Event) {
        if let Event::Readable { session } = event {
            let mut text = Vec::new();
            while let Some(channel) = endpoint.receive(now, session, &mut text) {
                let answer = format!("{}: {}", self.0, String::from_utf8_lossy(&text));
                endpoint
                    .send(now, session, channel, answer.as_bytes())
                    .unwrap();
            }
        }
    }

    fn on_command(
        &mut self,
        _: Instant,
        _: &mut Endpoint<Ring>,
        _: CommandId,
        command: Infallible,
    ) {
        match command {}
    }
}

/// A client with a socket that the test can replace.
struct Player {
    endpoint: Endpoint<Ring>,
    socket: PlainSocket,
    session: Option<SessionId>,
    clock: Clock,
}

impl Player {
    fn new() -> Self {
        let clock = Clock::new();
        let mut config = Config::default();
        config.connect_timeout = Duration::from_millis(700);
        Self {
            endpoint: Endpoint::new(config, APP, Ring::new(), clock.now()).unwrap(),
            socket: PlainSocket::bind("127.0.0.1:0").unwrap(),
            session: None,
            clock,
        }
    }

    /// Opens a session; `None` if it was rejected.
    fn enter(&mut self, target: Target) -> Option<()> {
        self.endpoint.connect(self.clock.now(), target).unwrap();
        let event = self.next();
        if let Event::Connected { session, .. } = event {
            self.session = Some(session);
            return Some(());
        }
        let is_refused = matches!(event, Event::ConnectFailed { .. });
        assert!(is_refused, "{event:?}");
        None
    }

    /// Sends a message and waits for the answer.
    fn ask(&mut self, words: &str) -> String {
        let (now, session) = (self.clock.now(), self.session.unwrap());
        let words = words.as_bytes();
        self.endpoint.send(now, session, RELIABLE, words).unwrap();
        let mut answer = Vec::new();
        loop {
            let now = self.clock.now();
            if self.endpoint.receive(now, session, &mut answer).is_some() {
                return String::from_utf8(answer).unwrap();
            }
            // Path events may arrive first.
            let event = self.next();
            let is_over = matches!(event, Event::Closed { .. } | Event::ConnectFailed { .. });
            assert!(!is_over, "{event:?}");
        }
    }

    /// Sends and receives until there is an event.
    fn next(&mut self) -> Event {
        let until = self.clock.now() + LONG;
        loop {
            let now = self.clock.now();
            assert!(now < until, "in vain");
            let mut buf = Vec::new();
            while let Some(transmit) = self.endpoint.poll_transmit(now, &mut buf) {
                for datagram in transmit.datagrams(&buf) {
                    self.socket.send_to(datagram, transmit.destination).unwrap();
                }
                buf.clear();
            }
            if let Some(event) = self.endpoint.poll_event() {
                return event;
            }
            let mut datagram = [0; 2_048];
            let wait = Duration::from_millis(5);
            self.socket.set_read_timeout(Some(wait)).unwrap();
            let received = self.socket.recv_from(&mut datagram);
            let now = self.clock.now();
            if let Ok((len, from)) = received {
                let datagram = &mut datagram[..len];
                self.endpoint
                    .handle_datagram(now, Arrival::from(from), datagram);
            }
            self.endpoint.handle_timeout(now);
        }
    }
}
