//! A complete game: join and chat over TCP, inputs and state over UDP; each server and client has
//! threads for both.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::mpsc::channel;
use std::thread;

use bytes::Bytes;
use tickwire::crypto::token::TokenKey;
use tickwire::crypto::{
    AddressList, ClientGrant, Identity, Ring, Secret32, ServerKeys, TokenGrant, UserData,
};
use tickwire::servicer::{
    Admission, ClientClose, ClientEvent, Clock, Dest, Dial, JoinRequest, MemberId, ReliableClient,
    ReliableConfig, ReliableServer, ServerEvent, StreamListener, TlsIdentity,
};
use tickwire::udp_proto::{Listen, Proof, Target};
use tickwire::wire::{ClientId, InstanceId, MatchId, NodeId, Seat, Team, UnixTime};
use tickwire::{
    BackgroundClient, BackgroundServer, Client, Config, Event, RELIABLE, Server, SessionId,
};

use crate::exchange::APP;

/// Wait timeout; no test passes because of it.
const LONG: Duration = Duration::from_secs(30);

/// Inputs that each player sends.
const INPUTS: u32 = 30;

const NAMES: [&str; 4] = ["ann", "bob", "eve", "zoe"];

#[test]
fn l1_players_join_over_tcp_and_play_over_udp_from_several_addresses() {
    for host in ["127.0.0.1", "127.0.0.9", "::1"] {
        play(host.parse().unwrap(), || {}, || {});
    }
}

/// Like a network: two namespaces of one host, connected by a pair of virtual interfaces. The
/// original's client reached only its own host.
#[cfg(target_os = "linux")]
#[test]
fn l1_gnet_g11_players_join_and_play_from_another_network_namespace() {
    use nix::sched::{CloneFlags, unshare};

    fn ip(line: &str) -> bool {
        let status = std::process::Command::new("ip")
            .args(line.split(' '))
            .status();
        status.is_ok_and(|status| status.success())
    }
    // A thread belongs to a namespace, and so do the threads that it starts.
    fn leave() -> bool {
        unshare(CloneFlags::CLONE_NEWNET).is_ok()
    }

    let may = thread::spawn(|| leave() && ip("link set lo up"));
    if !may.join().unwrap() {
        eprintln!("not available here: it takes the right to make network namespaces");
        return;
    }
    let (tell, reported) = channel();
    let (ready, is_ready) = channel();
    let enter_host_namespace = move || {
        assert!(leave());
        let players: nix::unistd::Pid = reported.recv().unwrap();
        assert!(ip(&format!(
            "link add tw0 type veth peer name tw1 netns {players}"
        )));
        assert!(ip("addr add 198.51.100.1/24 dev tw0") && ip("link set tw0 up"));
        ready.send(()).unwrap();
    };
    let enter_player_namespace = move || {
        assert!(leave());
        tell.send(nix::unistd::gettid()).unwrap();
        is_ready.recv().unwrap();
        assert!(ip("addr add 198.51.100.2/24 dev tw1") && ip("link set tw1 up"));
    };
    play(
        "198.51.100.1".parse().unwrap(),
        enter_host_namespace,
        enter_player_namespace,
    );
}

/// Players join, chat and play at a house of this address; each closure first runs on the thread
/// that starts its side.
fn play(
    host: IpAddr,
    enter_host_namespace: impl FnOnce() + Send + 'static,
    enter_player_namespace: impl FnOnce() + Send + 'static,
) {
    let (tell, reported) = channel();
    let host = thread::spawn(move || {
        enter_host_namespace();
        let mut host = GameHost::open(host);
        tell.send(host.place).unwrap();
        host.serve();
    });
    let players = thread::spawn(move || {
        enter_player_namespace();
        let place = reported.recv().unwrap();
        let mut byzantine = join(place, "ann:guessed");
        let refused = ClientClose::Refused(Bytes::from_static(b"wrong password"));
        assert_eq!(
            byzantine.wait_event(LONG),
            Some(ClientEvent::Closed(refused))
        );
        let players = NAMES.map(|name| thread::spawn(move || visit(place, name)));
        for player in players {
            player.join().unwrap();
        }
    });
    players.join().unwrap();
    host.join().unwrap();
}

/// Address of a house, and the node id expected there.
type Place = (SocketAddr, NodeId);

/// A server: one thread for UDP, one acceptor, and one for each member.
struct GameHost {
    place: Place,
    tcp: ReliableServer,
    udp: BackgroundServer,
    keys: ServerKeys,
    instance: InstanceId,
    token_key: TokenKey,
    names: BTreeMap<MemberId, String>,
    players: BTreeMap<SessionId, String>,
    /// Ended connections, counted once for TCP and once for UDP.
    ends: usize,
}

impl GameHost {
    fn open(ip: IpAddr) -> Self {
        let identity = Identity::generate(&mut Ring::new()).unwrap();
        let keys = ServerKeys::new(&[*identity.public_key()]).unwrap();
        let token_key = TokenKey::generate(&mut Ring::new(), 1).unwrap();
        // One key for both: a client that dialled the right node gets the right game.
        let tls = TlsIdentity::new(&identity).unwrap();
        let any = SocketAddr::from((ip, 0));
        let listener = StreamListener::bind(any, &tls, Admission::Anyone).unwrap();
        let place = (listener.local_address(), tls.node_id());
        let tcp = ReliableServer::start("house", vec![listener], &ReliableConfig::default());
        let mut udp = Server::bind_with(any, APP, Config::for_server(), |instance| {
            Listen::new(identity, instance)
        })
        .unwrap();
        udp.add_token_key(token_key.clone());
        Self {
            place,
            tcp: tcp.unwrap(),
            keys,
            instance: udp.instance(),
            udp: udp.in_background().unwrap(),
            token_key,
            names: BTreeMap::new(),
            players: BTreeMap::new(),
            ends: 0,
        }
    }

    /// Serves until all players have left over both.
    fn serve(&mut self) {
        while self.ends < 2 * NAMES.len() {
            if let Some(event) = self.tcp.wait_event(Duration::from_millis(1)) {
                self.on_tcp_event(event);
            }
            while let Some(event) = self.udp.next_event() {
                self.on_udp_event(event);
            }
        }
        let report = self.tcp.shutdown(LONG, Bytes::new());
        assert_eq!(
            (report.started, &report.faults),
            (report.joined, &Vec::new())
        );
    }

    fn on_tcp_event(&mut self, event: ServerEvent) {
        match event {
            ServerEvent::Join(request) => self.judge(request),
            ServerEvent::Message { from, payload } => {
                let text = String::from_utf8_lossy(&payload);
                let line = format!("{}: {text}", self.names[&from]);
                self.tell_all(line);
            }
            ServerEvent::Left { member, .. } => {
                let name = self.names.remove(&member).unwrap();
                self.ends += 1;
                self.tell_all(format!("* {name} has left"));
            }
            other @ (ServerEvent::Slow { .. } | ServerEvent::ThreadEnded { .. } | _) => {
                panic!("{other:?}")
            }
        }
    }

    /// Accepts clients with the right password, and sends them the game's address.
    fn judge(&mut self, request: JoinRequest) {
        let words = String::from_utf8_lossy(request.payload()).into_owned();
        let (name, password) = words.split_once(':').unwrap();
        if password != format!("password of {name}") {
            let reason = Bytes::from_static(b"wrong password");
            return self.tcp.refuse(request, reason);
        }
        let welcome = Bytes::from(self.grant(name).to_text().to_string());
        let member = self.tcp.accept(request, welcome).unwrap();
        self.names.insert(member, name.to_owned());
    }

    /// A grant for one session with the game, for the player `name`.
    fn grant(&self, name: &str) -> ClientGrant {
        let now = Clock::new().unix_time();
        let expires_at = UnixTime::from_secs((now + LONG).as_secs());
        let psk = Secret32::random(&mut Ring::new()).unwrap();
        let addresses = AddressList::new(&[self.udp.address()]).unwrap();
        let grant = TokenGrant {
            issued_at: now,
            expires_at,
            client_id: ClientId(number_of(name)),
            psk: psk.clone(),
            server_id: self.instance,
            addresses: addresses.clone(),
            match_id: MatchId([0; 16]),
            seat: Seat(0),
            team: Team(0),
            user: UserData::new(name.as_bytes()).unwrap(),
        };
        ClientGrant {
            app_id: APP.0,
            expires_at,
            psk,
            server_keys: self.keys.clone(),
            addresses,
            token: self
                .token_key
                .seal(&mut Ring::new(), APP.0, &grant)
                .unwrap(),
        }
    }

    fn tell_all(&mut self, line: String) {
        self.tcp.send(Dest::All, Bytes::from(line)).unwrap();
    }

    fn on_udp_event(&mut self, event: Event) {
        match event {
            Event::Connected { session, peer } => {
                let Proof::Token(grant) = &peer.proof else {
                    panic!("{peer:?}")
                };
                let name = String::from_utf8(grant.user.clone()).unwrap();
                self.players.insert(session, name);
            }
            Event::Message { session, bytes, .. } => {
                let input = String::from_utf8(bytes).unwrap();
                let state = format!("{} did {input}", self.players[&session]);
                self.udp.send(session, RELIABLE, state.as_bytes()).unwrap();
            }
            Event::Disconnected { session, .. } => {
                assert!(self.players.remove(&session).is_some());
                self.ends += 1;
            }
            other @ (Event::Settled { .. } | Event::Unreachable { .. } | _) => panic!("{other:?}"),
        }
    }
}

/// Account number of a player; no two may be equal.
fn number_of(name: &str) -> u64 {
    let place = NAMES.iter().position(|known| *known == name);
    u64::try_from(place.unwrap()).unwrap()
}

/// Sends a join request.
fn join((address, node): Place, words: &str) -> ReliableClient {
    let peer = node.into();
    let join = Bytes::copy_from_slice(words.as_bytes());
    let config = ReliableConfig::default();
    ReliableClient::connect("guest", Dial { address, peer }, None, join, &config).unwrap()
}

/// One guest: a thread for TCP, one for UDP, and its own.
fn visit(place: Place, name: &str) {
    let mut tcp = join(place, &format!("{name}:password of {name}"));
    let Some(ClientEvent::Accepted { welcome }) = tcp.wait_event(LONG) else {
        panic!("{name} was not let in")
    };
    let grant: ClientGrant = core::str::from_utf8(&welcome).unwrap().parse().unwrap();
    let target = Target::from(&grant);
    let mut udp = Client::connect_to(target, APP, Config::default())
        .unwrap()
        .in_background()
        .unwrap();
    let connected = udp.wait_event(LONG);
    assert!(
        matches!(connected, Some(Event::Connected { .. })),
        "{connected:?}"
    );
    for tick in 0..INPUTS {
        let input = format!("input {tick}");
        udp.send(RELIABLE, input.as_bytes()).unwrap();
        assert_eq!(state(&mut udp), format!("{name} did {input}"));
    }
    // The chat names a speaker by the name that the server accepted.
    tcp.send(Bytes::from_static(b"eve: hello")).unwrap();
    let mine = format!("{name}: eve: hello");
    while line(&mut tcp) != mine {}
    udp.disconnect().unwrap();
    assert!(matches!(
        udp.wait_event(LONG),
        Some(Event::Disconnected { .. })
    ));
    tcp.shutdown(LONG);
    assert!(udp.shutdown(LONG));
}

fn state(udp: &mut BackgroundClient) -> String {
    match udp.wait_event(LONG) {
        Some(Event::Message { bytes, .. }) => String::from_utf8(bytes).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn line(tcp: &mut ReliableClient) -> String {
    match tcp.wait_event(LONG) {
        Some(ClientEvent::Message(line)) => String::from_utf8(line.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    }
}
