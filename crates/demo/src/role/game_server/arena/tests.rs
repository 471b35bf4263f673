use std::convert::Infallible;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use crypto::token::{TokenGrant, TokenKey, UserData};
use crypto::{AddressList, Identity, PublicKey, Ring, Secret32};
use matchmaker_core::Seated;
use servicer::{Clock, Handle, SocketConfig, UdpServicer, UdpSocket};
use udp_proto::{CloseReason, Config, ConnectFailure, Credentials, Listen, ServerIdentity, Target};
use wire::{ClientId, InstanceId, Team};

use super::*;
use crate::game_protocol::{client_of, readers};
use crate::keyring::Keyring;
use crate::message::Place;
use crate::plan::{APP, Block, Claim, PlanOptions};
use crate::role::mail::{self, Writer};
use crate::role::players::player::{Player, PlayerRequest};
use crate::role::players::routes::{AssignedRoute, Targets};

const INSTANCE: InstanceId = InstanceId(5);
const TIMEOUT: Duration = Duration::from_secs(60);

/// A game server of one player's match, on a real socket.
struct Setup {
    plan: Plan,
    _claim: Claim,
    _keyring: Keyring,
    server_key: PublicKey,
    key: TokenKey,
    server: Option<Handle<GameRequest>>,
    event: Receiver<ChildEvent>,
    assigned: Receiver<MatchNotice>,
}

impl Setup {
    fn new() -> Self {
        let options = PlanOptions {
            seconds: 6,
            players: 1,
            ..PlanOptions::default()
        };
        let claim = Block::claim().unwrap();
        let plan = Plan::new(options, claim.block());
        let keyring = Keyring::make(&plan).unwrap();
        let (events, event) = EventWriter::observed();
        let writer = Writer::new(readers(&plan), events.clone()).unwrap();
        // No hub is there: mails wait.
        let mail = mail::join(keyring.directory(), "mail", writer).unwrap();
        let identity = Identity::generate(&mut Ring::new()).unwrap();
        let server_key = *identity.public_key();
        let key = TokenKey::generate(&mut Ring::new(), 1).unwrap();
        let now = Clock::new().now();
        let mut endpoint = Endpoint::new(Config::for_server(), APP, Ring::new(), now).unwrap();
        endpoint
            .listen(now, Listen::new(identity, INSTANCE))
            .unwrap();
        endpoint.add_token_key(key.clone());
        let (send, assigned) = mpsc::channel();
        let arena = Arena::new(&plan, (events, mail.requests(), send));
        let server = UdpServicer::named("game")
            .spawn(vec![socket(plan.server())], endpoint, arena)
            .unwrap();
        for kind in SessionKind::ALL {
            server
                .request(GameRequest::Assign(Assign {
                    instance: INSTANCE,
                    match_id: match_of(kind),
                    players: vec![Seated {
                        client_id: client_of(Seat(0), kind),
                        seat: Seat(0),
                        team: Team(0),
                    }],
                }))
                .unwrap();
        }
        Self {
            plan,
            _claim: claim,
            _keyring: keyring,
            server_key,
            key,
            server: Some(server),
            event,
            assigned,
        }
    }

    /// A token that this server opens, for whomever.
    fn target(&self, client: ClientId, kind: SessionKind, match_id: MatchId) -> Target {
        let mut ring = Ring::new();
        let now = Clock::new().unix_time();
        let psk = Secret32::random(&mut ring).unwrap();
        let grant = TokenGrant {
            issued_at: now,
            expires_at: now + Duration::from_secs(60),
            client_id: client,
            psk: psk.clone(),
            server_id: INSTANCE,
            addresses: AddressList::new(&[self.plan.server()]).unwrap(),
            match_id,
            seat: Seat(0),
            team: Team(0),
            user: UserData::new(kind.user()).unwrap(),
        };
        let token = self.key.seal(&mut ring, APP.0, &grant).unwrap();
        Target {
            addresses: vec![self.plan.server()],
            server: ServerIdentity::Keys(vec![self.server_key]),
            credentials: Credentials::Token {
                token: token.as_bytes().to_vec(),
                psk,
            },
        }
    }

    fn seated(&self, kind: SessionKind) -> Target {
        self.target(client_of(Seat(0), kind), kind, match_of(kind))
    }

    /// Connects with that token, and returns the outcome.
    fn connect(&self, target: Target) -> End {
        self.connect_with(Config::default(), target)
    }

    fn connect_with(&self, config: Config, target: Target) -> End {
        let (_stranger, received) = self.come(config, target);
        received.recv_timeout(TIMEOUT).unwrap()
    }

    /// Connects with that token, and stays connected if admitted.
    fn come(&self, config: Config, target: Target) -> (Handle<Target>, Receiver<End>) {
        let (assigned, received) = mpsc::channel();
        let now = Clock::new().now();
        let endpoint = Endpoint::new(config, APP, Ring::new(), now).unwrap();
        let own = socket(SocketAddr::new(self.plan.player(Seat(1)), 0));
        let outsider = UdpServicer::named("stranger")
            .spawn(vec![own], endpoint, RejectedClient(assigned))
            .unwrap();
        outsider.request(target).unwrap();
        (outsider, received)
    }

    /// Asks what the link asks.
    fn send(&self, request: GameRequest) {
        self.server.as_ref().unwrap().request(request).unwrap();
    }

    fn wait_for(&self, wanted: impl Fn(&ChildEvent) -> bool) -> ChildEvent {
        loop {
            let event = self.event.recv_timeout(TIMEOUT).unwrap();
            if wanted(&event) {
                return event;
            }
        }
    }
}

/// The match that the sessions of a kind make.
const fn match_of(kind: SessionKind) -> MatchId {
    MatchId(
        [match kind {
            SessionKind::Play => 9,
            SessionKind::Measure => 10,
            SessionKind::Fallback => 11,
        }; 16],
    )
}

/// What became of a session.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Closed(CloseReason),
    Failed(ConnectFailure),
}

/// Connects, and says how its session ended.
struct RejectedClient(Sender<End>);

impl Application<Endpoint<Ring>> for RejectedClient {
    type Request = Target;

    fn apply_request(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint<Ring>,
        target: Target,
    ) -> ControlFlow<()> {
        endpoint.connect(now, target).unwrap();
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, _: Instant, _: &mut Endpoint<Ring>, event: Event) {
        let end = match event {
            Event::Closed { reason, .. } => End::Closed(reason),
            Event::ConnectFailed { failure, .. } => End::Failed(failure),
            Event::Connected { .. }
            | Event::Readable { .. }
            | Event::MtuChecked { .. }
            | Event::RateChanged { .. }
            | Event::Settled { .. }
            | _ => {
                return;
            }
        };
        self.0.send(end).ok();
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

fn socket(address: SocketAddr) -> UdpSocket {
    UdpSocket::bind(address, &SocketConfig::default()).unwrap()
}

#[test]
fn a_token_without_a_seat_is_rejected_and_counted() {
    let mut setup = Setup::new();
    let (events, assigned) = EventWriter::observed();
    let (samples, _measured) = mpsc::channel();
    let now = Clock::new().now();
    let endpoint = Endpoint::new(Config::default(), APP, Ring::new(), now).unwrap();
    let player = Player::new(&setup.plan, Seat(0), now, (events, samples));
    let own = socket(SocketAddr::new(setup.plan.player(Seat(0)), 0));
    let player = UdpServicer::named("player")
        .spawn(vec![own], endpoint, player)
        .unwrap();
    let targets = Targets {
        assigned: AssignedRoute::Direct,
        play: setup.seated(SessionKind::Play),
        fallback: setup.seated(SessionKind::Fallback),
        measure: setup.seated(SessionKind::Measure),
    };
    let place = Place {
        match_id: match_of(SessionKind::Play).to_string(),
        seat: 0,
    };
    let join = PlayerRequest::Join(place.clone(), Box::new(targets));
    player.request(join).unwrap();
    setup.wait_for(|event| *event == ChildEvent::Started);
    let seated = ChildEvent::Seated {
        player: 0,
        given: place.clone(),
        played: place,
    };
    while assigned.recv_timeout(TIMEOUT).unwrap() != seated {}

    let turned_away = End::Closed(CloseReason::Peer(CloseCode::App));
    // Of the match, and nobody's seat; a seat of a match that nobody has assigned; and a seat
    // whose token is for a session of another kind.
    let (play, measure) = (SessionKind::Play, SessionKind::Measure);
    for (client, kind, match_id) in [
        (client_of(Seat(1), play), play, match_of(play)),
        (client_of(Seat(0), play), play, match_of(measure)),
        (client_of(Seat(0), measure), measure, MatchId([8; 16])),
        (client_of(Seat(0), measure), play, match_of(measure)),
    ] {
        let end = setup.connect(setup.target(client, kind, match_id));
        assert_eq!(end, turned_away, "{client:?} {kind:?}");
    }

    let is_last = |event: &ChildEvent| {
        let (player, all) = (None, setup.plan.ticks());
        matches!(event, ChildEvent::Checkpoint { player: of, ticks, .. } if *of == player && *ticks == all)
    };
    setup.wait_for(|event| {
        assert!(!matches!(event, ChildEvent::Left { .. }), "{event:?}");
        is_last(event)
    });
    let server = setup.server.take().unwrap();
    server.shutdown(Duration::from_secs(1));
    let closed = setup.wait_for(|event| matches!(event, ChildEvent::Closed { .. }));
    assert_eq!(closed, ChildEvent::Closed { joins_refused: 4 });
}

#[test]
fn a_token_key_is_valid_from_registration_until_it_lapses() {
    let mut setup = Setup::new();
    let mut config = Config::default();
    config.connect_timeout = Duration::from_secs(1);
    // Whoever is understood is told that it has no seat.
    let understood = End::Closed(CloseReason::Peer(CloseCode::App));
    let connect = |setup: &Setup, expected: &End| {
        let (kind, nobody) = (SessionKind::Play, ClientId(77));
        let end = setup.connect_with(config.clone(), setup.target(nobody, kind, match_of(kind)));
        assert_eq!(end, *expected);
    };
    let new = TokenKey::generate(&mut Ring::new(), 2).unwrap();
    setup.send(GameRequest::TokenKey(Box::new(new.clone())));
    connect(&setup, &understood);
    let old = std::mem::replace(&mut setup.key, new);
    connect(&setup, &understood);
    setup.send(GameRequest::TokenKeyLapsed(old.id()));
    connect(&setup, &understood);
    setup.key = old;
    let refused = ConnectFailure::RefusedUnproved(CloseCode::TokenInvalid);
    connect(&setup, &End::Failed(refused));
}

#[test]
fn no_player_joins_without_a_lease() {
    let setup = Setup::new();
    setup.send(GameRequest::Closed(true));
    let turned_away = End::Closed(CloseReason::Peer(CloseCode::App));
    for kind in SessionKind::ALL {
        assert_eq!(setup.connect(setup.seated(kind)), turned_away, "{kind:?}");
    }
    assert!(setup.assigned.try_recv().is_err(), "nobody has entered");
    setup.send(GameRequest::Closed(false));
    let _stays = setup.come(Config::default(), setup.seated(SessionKind::Play));
    let MatchNotice::Entered(match_id) = setup.assigned.recv_timeout(TIMEOUT).unwrap() else {
        panic!("the match has not begun");
    };
    assert_eq!(match_id, match_of(SessionKind::Play));
}
