//! Two endpoints in each mode: every datagram between them, and its plaintext.

use core::net::SocketAddr;
use core::time::Duration;
use std::sync::{Arc, Mutex};

use crypto::{
    Aead, BadPoint, Identity, NoEntropy, OpenError, Provider, PublicKey, Role, Secret32, Suite,
};
use fuzz::crypto_token::{AUDIENCE, NOW, key};
use netsim::provider::{SimAead, SimEphemeral, SimProvider, SimSigningKey};
use udp_proto::handshake::accept::CLEAR_LEN;
use udp_proto::packet::Kind;
use udp_proto::{
    AppId, ChannelId, ChannelTable, CidLen, CloseCode, Config, Credentials, Endpoint, Event,
    Listen, Network, ServerIdentity, SessionId, Target,
};
use wire::{Arrival, Instant, NodeId, Seed};

use crate::{Book, handshake, hex, packets};

/// Writes each datagram intact and damaged, and each plaintext.
pub(crate) fn write(book: &mut Book) {
    for mode in [Mode::Open, Mode::Token, Mode::Peer] {
        let mut talk = Talk::new(mode);
        for turn in 0..900 {
            talk.turn(book, turn);
        }
        assert!(
            talk.incoming >= 600,
            "{} messages were heard",
            talk.incoming
        );
        talk.put(book);
    }
}

#[derive(Clone, Copy)]
enum Mode {
    Open,
    Token,
    Peer,
}

struct Talk {
    table: ChannelTable,
    tap: Tap,
    /// Client and server.
    ends: [Endpoint<Tapped>; 2],
    sessions: [Option<SessionId>; 2],
    now: Instant,
    datagrams: Vec<(usize, Vec<u8>)>,
    incoming: usize,
}

const ADDRESSES: [&str; 2] = ["198.51.100.1:4000", "192.0.2.1:7777"];

fn address(end: usize) -> SocketAddr {
    ADDRESSES[end].parse().unwrap()
}

impl Talk {
    fn new(mode: Mode) -> Self {
        let table = packets::every_kind();
        let mut config = Config::default();
        config.channels = table.clone();
        config.cid_len = CidLen::Eight;
        let tap = Tap::default();
        let app = AppId(AUDIENCE.app_id);
        let mut ends = [1, 2].map(|number| {
            let provider = Tapped::new(Seed::from_number(number), &tap);
            Endpoint::new(config.clone(), app, provider, Instant::ZERO).unwrap()
        });
        let identities = [3, 4].map(|number| Identity::generate(&mut sim(number)).unwrap());
        let public = *identities[1].public_key();
        let network = || Network {
            secret: Secret32::new([3; 32]),
            previous: None,
        };
        for (end, identity) in ends.iter_mut().zip(identities) {
            let listen = Listen::new(identity, AUDIENCE.server_id)
                .with_open_mode()
                .with_network(network())
                .with_resets(Secret32::new([5; 32]));
            end.listen(Instant::ZERO, listen).unwrap();
            assert!(end.add_token_key(key()));
            end.set_unix_time(Instant::ZERO, NOW);
        }
        let node = NodeId(sim(0).sha256(&[&public.0]));
        let keys = ServerIdentity::Keys(vec![public]);
        let (server, credentials) = match mode {
            Mode::Open => (keys, Credentials::Open),
            Mode::Token => (keys, token()),
            Mode::Peer => (ServerIdentity::Node(node), Credentials::Peer),
        };
        let target = Target {
            addresses: vec![address(1)],
            server,
            credentials,
        };
        let session = ends[0].connect(Instant::ZERO, target).unwrap();
        Self {
            table,
            tap,
            ends,
            sessions: [Some(session), None],
            now: Instant::ZERO,
            datagrams: Vec::new(),
            incoming: 0,
        }
    }

    fn turn(&mut self, book: &mut Book, turn: u32) {
        self.now += Duration::from_millis(book.generator.below(30));
        for end in 0..2 {
            if let Some(session) = self.sessions[end].filter(|_| self.sessions[1].is_some()) {
                let channel = ChannelId(book.pick(&[0, 1, 2, 3, 4, 5]));
                let len = if channel.0 == 4 { 60 } else { 2_500 };
                let len = book.pick(&[1_usize, 40, 100, 1_100, len]).min(len);
                let message = book.bytes(len);
                // The queue may be full.
                self.ends[end]
                    .send(self.now, session, channel, &message)
                    .ok();
                match turn {
                    300 | 600 => self.ends[end].update_keys(self.now, session).unwrap(),
                    890 if end == 0 => {
                        let text = b"that was all";
                        self.ends[0]
                            .close(self.now, session, CloseCode::App, text)
                            .unwrap();
                    }
                    _ => {}
                }
            }
            self.ends[end].handle_timeout(self.now);
        }
        for end in 0..2 {
            let mut sent = Vec::new();
            let mut buffer = Vec::new();
            while let Some(transmit) = self.ends[end].poll_transmit(self.now, &mut buffer) {
                sent.extend(transmit.datagrams(&buffer).map(<[u8]>::to_vec));
                buffer.clear();
            }
            for bytes in sent {
                if book.generator.below(5) > 0 {
                    let arrival = Arrival::from(address(end));
                    self.ends[1 - end].handle_datagram(self.now, arrival, &mut bytes.clone());
                }
                self.datagrams.push((1 - end, bytes));
            }
        }
        for end in 0..2 {
            self.listen(end);
        }
    }

    fn listen(&mut self, end: usize) {
        let mut message = Vec::new();
        while let Some(event) = self.ends[end].poll_event() {
            match event {
                Event::Connected { session, .. } => self.sessions[end] = Some(session),
                Event::Closed { .. } => self.sessions = [None; 2],
                Event::Readable { session } => {
                    while self.ends[end]
                        .receive(self.now, session, &mut message)
                        .is_some()
                    {
                        self.incoming += 1;
                        message.clear();
                    }
                }
                Event::ConnectFailed { .. }
                | Event::Settled { .. }
                | Event::AddressChanged { .. }
                | Event::MtuChecked { .. }
                | Event::RateChanged { .. }
                | _ => {}
            }
        }
    }

    fn put(&self, book: &mut Book) {
        for (_, bytes) in &self.datagrams {
            let damaged = book.damage(bytes);
            for bytes in [bytes, &damaged] {
                if Kind::of(bytes.first().copied().unwrap_or(0)) == Kind::Protected {
                    packets::put_header(book, bytes, 8);
                } else {
                    handshake::put(book, bytes);
                }
            }
        }
        for seal in &self.tap.0.lock().unwrap().seals {
            match seal.clear.first().map(|first| Kind::of(*first)) {
                Some(Kind::Accept) if seal.clear.len() == CLEAR_LEN => {
                    handshake::put_body(book, &seal.plain);
                    // The parameters precede the signature of 64 bytes.
                    let params = seal.plain.len() - 104;
                    let params = seal.plain[params..params + 40].try_into().unwrap();
                    handshake::put_params(book, params);
                }
                Some(Kind::Protected) => packets::put_frames(book, &seal.plain, &self.table),
                other => panic!("{other:?} is sealed"),
            }
        }
    }
}

fn sim(number: u64) -> SimProvider {
    SimProvider::new(Seed::from_number(number))
}

/// Returns the corpus's token, with its PSK.
fn token() -> Credentials {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/corpus/crypto_token_open/seed_longest"
    );
    Credentials::Token {
        token: std::fs::read(path).unwrap(),
        psk: Secret32::new([6; 32]),
    }
}

/// The plaintexts, with their keys.
#[derive(Clone, Default)]
pub(crate) struct Tap(Arc<Mutex<Tapes>>);

#[derive(Default)]
struct Tapes {
    keys: Vec<String>,
    seals: Vec<Seal>,
}

struct Seal {
    nonce: [u8; 12],
    clear: Vec<u8>,
    plain: Vec<u8>,
}

impl Tap {
    pub(crate) fn clear(&self) {
        *self.0.lock().unwrap() = Tapes::default();
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.0.lock().unwrap().keys.clone()
    }

    pub(crate) fn nonces(&self) -> Vec<String> {
        let tapes = self.0.lock().unwrap();
        tapes.seals.iter().map(|seal| hex(&seal.nonce)).collect()
    }
}

/// A provider which records what it seals.
pub(crate) struct Tapped {
    inner: SimProvider,
    tap: Tap,
}

impl Tapped {
    pub(crate) fn new(seed: Seed, tap: &Tap) -> Self {
        Self {
            inner: SimProvider::new(seed),
            tap: tap.clone(),
        }
    }
}

impl Provider for Tapped {
    type Aead = TappedAead;
    type Ephemeral = SimEphemeral;
    type SigningKey = SimSigningKey;

    fn random(&mut self, out: &mut [u8]) -> Result<(), NoEntropy> {
        self.inner.random(out)
    }

    fn ephemeral(&mut self, role: Role) -> Result<(SimEphemeral, PublicKey), NoEntropy> {
        self.inner.ephemeral(role)
    }

    fn agree(&self, own: &mut SimEphemeral, peer: &PublicKey) -> Result<Secret32, BadPoint> {
        self.inner.agree(own, peer)
    }

    fn aead(&self, suite: Suite, key: &Secret32) -> TappedAead {
        let shown = hex(&key.expose()[..suite.key_len()]);
        self.tap.0.lock().unwrap().keys.push(shown);
        TappedAead {
            inner: self.inner.aead(suite, key),
            tap: self.tap.clone(),
        }
    }

    fn signing_key(&mut self, identity: &Identity) -> Result<SimSigningKey, NoEntropy> {
        self.inner.signing_key(identity)
    }

    fn sign(&mut self, key: &SimSigningKey, message: &[u8]) -> Result<[u8; 64], NoEntropy> {
        self.inner.sign(key, message)
    }

    fn verify(&self, key: &PublicKey, message: &[u8], signature: &[u8; 64]) -> bool {
        self.inner.verify(key, message, signature)
    }

    fn sha256(&self, parts: &[&[u8]]) -> [u8; 32] {
        self.inner.sha256(parts)
    }

    fn hmac_sha256(&self, key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
        self.inner.hmac_sha256(key, parts)
    }
}

/// An AEAD of [`Tapped`].
pub(crate) struct TappedAead {
    inner: SimAead,
    tap: Tap,
}

impl Aead for TappedAead {
    fn seal(&self, nonce: [u8; 12], aad: &[u8], inout: &mut [u8], tag: &mut [u8; 16]) {
        self.tap.0.lock().unwrap().seals.push(Seal {
            nonce,
            clear: aad.to_vec(),
            plain: inout.to_vec(),
        });
        self.inner.seal(nonce, aad, inout, tag);
    }

    fn open(
        &self,
        nonce: [u8; 12],
        aad: &[u8],
        inout: &mut [u8],
        tag: &[u8; 16],
    ) -> Result<(), OpenError> {
        self.inner.open(nonce, aad, inout, tag)
    }
}
