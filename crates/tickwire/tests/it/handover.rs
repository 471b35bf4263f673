//! A lobby, identified by its certificate, hands over the game's public keys.

use core::convert::Infallible;
use core::net::SocketAddr;
use core::num::NonZeroU8;
use core::ops::ControlFlow;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::mpsc;

use base64ct::{Base64, Encoding};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tickwire::crypto::{Identity, PublicKey, Ring};
use tickwire::servicer::{
    Authorities, Dial, DialError, HostCertificate, StreamApplication, StreamListener,
    StreamServicer,
};
use tickwire::udp_proto::{ConnectFailure, Credentials, Listen, ServerIdentity, Target};
use tickwire::wire::{
    CloseCause, CommandId, ConnectionId, Effect, Instant, Outbound, PeerIdentity, StreamMachine,
};
use tickwire::{Client, Config, Event, RELIABLE, Server};

use crate::exchange::{APP, address};

/// Wait timeout; no test passes because of it.
const LONG: Duration = Duration::from_secs(30);

/// Sends its offer to each client, and records what it receives.
#[derive(Debug, Default)]
struct LobbyMachine {
    /// Sent to each client.
    offer: Vec<u8>,
    /// Dials to make.
    calls: VecDeque<(CommandId, Call)>,
    players: VecDeque<ConnectionId>,
    received: VecDeque<Vec<u8>>,
}

#[derive(Debug)]
struct Call(Dial);

impl Effect for Call {
    type Outcome = Infallible;
}

impl StreamMachine for LobbyMachine {
    type Event = Vec<u8>;
    type Command = Call;

    fn handle_opened(&mut self, _: Instant, id: ConnectionId, peer: &PeerIdentity) {
        match peer {
            PeerIdentity::Anonymous => self.players.push_back(id),
            PeerIdentity::Host => {}
            PeerIdentity::Node(_) | _ => panic!("{peer:?}"),
        }
    }
    fn handle_frame(&mut self, _: Instant, _: ConnectionId, record: &[u8]) {
        self.received.push_back(record.to_vec());
    }
    fn handle_credit(&mut self, _: Instant, _: ConnectionId, _: usize) {}
    fn handle_closed(&mut self, _: Instant, _: ConnectionId, _: CloseCause) {}
    fn poll_outbound(&mut self, _: Instant, buf: &mut Vec<u8>) -> Option<Outbound> {
        let connection = self.players.pop_front()?;
        buf.extend_from_slice(&self.offer);
        Some(Outbound {
            connection,
            close: true,
        })
    }
    fn handle_timeout(&mut self, _: Instant) {}
    fn handle_completed(&mut self, _: Instant, _: CommandId, outcome: Infallible) {
        match outcome {}
    }
    fn poll_command(&mut self) -> Option<(CommandId, Call)> {
        self.calls.pop_front()
    }
    fn poll_event(&mut self) -> Option<Vec<u8>> {
        self.received.pop_front()
    }
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

/// Forwards what the machine receives.
struct Forwarder(mpsc::Sender<Result<Vec<u8>, DialError>>);

impl StreamApplication<LobbyMachine> for Forwarder {
    type Request = ();

    fn apply_request(&mut self, _: Instant, _: &mut LobbyMachine, (): ()) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
    fn on_event(&mut self, _: Instant, _: &mut LobbyMachine, received: Vec<u8>) {
        drop(self.0.send(Ok(received)));
    }
    fn on_command(
        &mut self,
        _: Instant,
        _: &mut LobbyMachine,
        _: CommandId,
        call: Call,
    ) -> Option<Dial> {
        Some(call.0)
    }
    fn on_dialled(
        &mut self,
        _: Instant,
        _: &mut LobbyMachine,
        _: CommandId,
        result: Result<ConnectionId, DialError>,
    ) {
        if let Err(error) = result {
            drop(self.0.send(Err(error)));
        }
    }
}

/// Gets the offer of the lobby at `address`, which must be the host `lobby.example`.
fn ask(address: SocketAddr, authorities: &Authorities) -> Result<Vec<u8>, DialError> {
    let peer = authorities.host("lobby.example").unwrap().into();
    let call = (CommandId(1), Call(Dial { address, peer }));
    let machine = LobbyMachine {
        calls: VecDeque::from([call]),
        ..LobbyMachine::default()
    };
    let (sender, received) = mpsc::channel();
    let handle = StreamServicer::named("visitor").spawn(Vec::new(), machine, Forwarder(sender));
    let answer = received.recv_timeout(LONG).unwrap();
    handle.unwrap().shutdown(LONG);
    answer
}

/// Opens a session with a game by the keys that were handed over; returns the outcome.
fn play(server: &mut Server, keys: &[u8], patience: Duration) -> Result<Vec<u8>, ConnectFailure> {
    let keys: Vec<PublicKey> = core::str::from_utf8(keys)
        .unwrap()
        .lines()
        .map(|line| line.parse().unwrap())
        .collect();
    let target = Target {
        addresses: vec![server.address()],
        server: ServerIdentity::Keys(keys),
        credentials: Credentials::Open,
    };
    let mut config = Config::default();
    config.connect_timeout = patience;
    let mut client = Client::connect_to(target, APP, config).unwrap();
    for _ in 0..20_000 {
        for event in server.poll() {
            if let Event::Connected { session, .. } = event {
                server.send(session, RELIABLE, b"welcome").unwrap();
            }
        }
        for event in client.wait_tick(NonZeroU8::MAX).unwrap() {
            match event {
                Event::Message { bytes, .. } => return Ok(bytes),
                Event::Unreachable { failure, .. } => return Err(failure),
                Event::Connected { .. } => {}
                other @ (Event::Settled { .. } | Event::Disconnected { .. } | _) => {
                    panic!("{other:?}")
                }
            }
        }
    }
    panic!("nothing came of it");
}

fn game(identity: &Identity) -> Server {
    let identity = Identity::from_pem(&identity.to_pem()).unwrap();
    Server::bind_with(address("127.0.0.1:0"), APP, Config::for_server(), |id| {
        Listen::new(identity, id).with_open_mode()
    })
    .unwrap()
}

#[test]
fn b4_a_certified_host_hands_over_the_keys_of_the_game() {
    let (certificate, trusted) = lobby_certificate();
    let [old, new] = [(); 2].map(|()| Identity::generate(&mut Ring::new()).unwrap());
    // Both keys are handed over, because the game switches from one to the other.
    let offer = format!("{}\n{}\n", old.public_key(), new.public_key());
    let listener = StreamListener::bind_host(address("127.0.0.1:0"), &certificate).unwrap();
    let lobby = listener.local_address();
    let machine = LobbyMachine {
        offer: offer.clone().into_bytes(),
        ..LobbyMachine::default()
    };
    let forwarder = Forwarder(mpsc::channel().0);
    let handle = StreamServicer::named("lobby").spawn(vec![listener], machine, forwarder);

    let keys = ask(lobby, &trusted).unwrap();
    assert_eq!(keys, offer.as_bytes());
    assert_eq!(play(&mut game(&old), &keys, LONG), Ok(b"welcome".to_vec()));
    assert_eq!(play(&mut game(&new), &keys, LONG), Ok(b"welcome".to_vec()));
    // A game with another key is rejected.
    let other = Identity::generate(&mut Ring::new()).unwrap();
    assert!(matches!(
        play(&mut game(&other), &keys, Duration::from_millis(600)),
        Err(ConnectFailure::NotTheServer { rejected: 1.. })
    ));
    // So is a lobby with a certificate of another authority.
    let (_, others) = lobby_certificate();
    assert!(matches!(
        ask(lobby, &others),
        Err(DialError::Certificate(_))
    ));
    handle.unwrap().shutdown(LONG);
}

/// Creates an authority and a certificate for the host `lobby.example`.
fn lobby_certificate() -> (HostCertificate, Authorities) {
    let pem = |label: &str, der: &[u8]| {
        let body = Base64::encode_string(der);
        format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n")
    };
    let mut root = CertificateParams::new(Vec::new()).unwrap();
    root.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let root_key = KeyPair::generate().unwrap();
    let authority = pem("CERTIFICATE", root.self_signed(&root_key).unwrap().der());
    let key = KeyPair::generate().unwrap();
    let host = CertificateParams::new(["lobby.example".to_owned()]).unwrap();
    let host = host.signed_by(&key, &Issuer::new(root, root_key)).unwrap();
    let chain = pem("CERTIFICATE", host.der());
    let key = pem("PRIVATE KEY", key.serialized_der());
    (
        HostCertificate::from_pem(&chain, &key).unwrap(),
        Authorities::from_pem(&authority).unwrap(),
    )
}
