//! A client written by hand from the specification, which can send what no endpoint would.

use crypto::{
    Agreed, Initial, OpeningKey, Provider, PublicKey, Role, SealingKey, Secret32, SessionSecrets,
    Suite,
};
use netsim::provider::{SimAead, SimEphemeral, SimProvider};
use udp_proto::VERSION_1;
use udp_proto::handshake::accept::{AcceptBody, AcceptClear, CLEAR_LEN};
use udp_proto::handshake::hello::{Hello, Hello0, set_cookie, set_psk_mac};
use udp_proto::handshake::params::Params;
use udp_proto::handshake::reply::Retry;
use udp_proto::packet::Cid;
use udp_proto::{Config, Credentials};
use wire::Seed;

use crate::harness::APP;

/// One attempt: its key, its HELLO and its secrets.
pub(crate) struct Rogue {
    pub(crate) provider: SimProvider,
    pub(crate) psk: Option<Secret32>,
    pub(crate) hello: Vec<u8>,
    ephemeral: Option<SimEphemeral>,
}

/// A session after the ACCEPT.
pub(crate) struct RogueSession {
    pub(crate) sealing: SealingKey<SimAead>,
    /// For the server's phases 0 and 1.
    pub(crate) opening: [OpeningKey<SimAead>; 2],
    /// The key phase bit of our packets.
    key_phase: u8,
    pub(crate) server_cid: Cid,
    pub(crate) th1: [u8; 32],
}

impl Rogue {
    pub(crate) fn new(number: u64, credentials: &Credentials) -> Self {
        Self::with(number, credentials, |_| {})
    }

    /// As [`new`](Self::new), with fields changed before the MAC is computed.
    pub(crate) fn with(
        number: u64,
        credentials: &Credentials,
        change: impl FnOnce(&mut Hello<'_>),
    ) -> Self {
        let mut provider = SimProvider::new(Seed::from_number(number).generator(7_000).seed());
        let (ephemeral, key) = provider.ephemeral(Role::Dialler).expect("seeded");
        let mut rogue = Self::with_key(provider, key, credentials, change);
        rogue.ephemeral = Some(ephemeral);
        rogue
    }

    /// As [`with`](Self::with), with another's key: it can never read an ACCEPT, and costs no key
    /// generation.
    pub(crate) fn with_key(
        mut provider: SimProvider,
        key: PublicKey,
        credentials: &Credentials,
        change: impl FnOnce(&mut Hello<'_>),
    ) -> Self {
        let mut id = [0; 8];
        provider.random(&mut id).expect("seeded");
        let (token, psk) = match credentials {
            Credentials::Token { token, psk } => (token.as_slice(), Some(psk.clone())),
            _ => (&[][..], None),
        };
        let mut hello = Hello {
            version: VERSION_1,
            version_max: VERSION_1,
            app_id: APP.0,
            hello_id: u64::from_be_bytes(id),
            suites: 1,
            client_cid: Cid::from_slice(&[1, 2, 3, 4]).expect("short"),
            client_ephemeral: key,
            cookie: None,
            psk_mac: [0; 16],
            token,
        };
        change(&mut hello);
        let mut bytes = Vec::new();
        hello.encode(&mut bytes);
        let mut rogue = Self {
            provider,
            psk,
            hello: bytes,
            ephemeral: None,
        };
        rogue.sign();
        rogue
    }

    /// Writes the MAC that proves the PSK.
    pub(crate) fn sign(&mut self) {
        let Some(psk) = &self.psk else { return };
        let initial = Initial::new(&self.provider, Some(psk));
        let hello0 = Hello0::new(&self.hello).expect("1,200 bytes");
        let mac = initial.hello_mac(&self.provider, &hello0.mac_parts());
        set_psk_mac(&mut self.hello, &mac);
    }

    /// Puts the cookie of a RETRY into the HELLO.
    pub(crate) fn follow(&mut self, retry: &[u8]) {
        let retry = Retry::decode(retry).expect("a RETRY");
        set_cookie(&mut self.hello, &retry.cookie);
    }

    /// Reads the ACCEPT without checking its signature.
    pub(crate) fn accept(&mut self, datagram: &[u8]) -> RogueSession {
        let ephemeral = self.ephemeral.as_mut().expect("its own key");
        let clear = AcceptClear::decode(datagram).expect("an ACCEPT");
        let shared = self
            .provider
            .agree(ephemeral, &clear.server_ephemeral)
            .expect("a point");
        let hello0 = Hello0::new(&self.hello).expect("1,200 bytes");
        let [a, b, c] = hello0.parts();
        let provider = &self.provider;
        let agreed = |psk| -> Agreed { Initial::new(provider, psk).agree(provider, &shared) };
        let (head, sealed) = datagram.split_at(CLEAR_LEN);
        let th0 = provider.sha256(&[a, b, c, head]);
        let th1 = provider.sha256(&[a, b, c, datagram]);
        let (body, tag) = sealed.split_last_chunk::<16>().expect("a tag");
        let mut body = body.to_vec();
        agreed(self.psk.as_ref())
            .accept_key(provider, clear.suite, &th0)
            .open(head, &mut body, tag)
            .expect("sealed for us");
        AcceptBody::decode(&body).expect("a body");
        let secrets = || -> SessionSecrets { agreed(self.psk.as_ref()).traffic(provider, &th1) };
        let (ours, theirs, _) = secrets().split(Role::Dialler);
        RogueSession {
            opening: [
                theirs.opening_key(provider, clear.suite),
                theirs.next(provider).opening_key(provider, clear.suite),
            ],
            key_phase: 0,
            sealing: ours.into_sealing_key(provider, clear.suite),
            server_cid: clear.server_cid,
            th1,
        }
    }
}

impl RogueSession {
    /// Seals a packet with any plaintext.
    pub(crate) fn packet(&mut self, plaintext: &[u8]) -> Vec<u8> {
        let number = self.sealing.next_number().to_be_bytes();
        let mut packet = vec![0x40 | self.key_phase];
        packet.extend_from_slice(self.server_cid.as_slice());
        packet.extend_from_slice(&number[6..]);
        let head = packet.len();
        packet.extend_from_slice(plaintext);
        while packet.len() < head + 4 {
            packet.push(0);
        }
        let (clear, body) = packet.split_at_mut(head);
        let mut tag = [0; 16];
        self.sealing.seal(clear, body, &mut tag).expect("fresh key");
        packet.extend_from_slice(&tag);
        packet
    }

    /// Starts the next key phase, allowed or not.
    pub(crate) fn update(&mut self) {
        self.sealing.update(&SimProvider::new(Seed::from_number(0)));
        self.key_phase ^= 0x20;
    }

    /// Skips a packet number, as if that packet was lost.
    pub(crate) fn lose(&mut self) {
        self.sealing.skip().expect("fresh key");
    }

    /// Opens a packet of the server's first two phases with a 4-byte connection id and a 2-byte
    /// number.
    pub(crate) fn open(&self, packet: &[u8]) -> Option<Vec<u8>> {
        let (head, sealed) = packet.split_at_checked(7)?;
        let number = u16::from_be_bytes([head[5], head[6]]);
        let (body, tag) = sealed.split_last_chunk::<16>()?;
        let mut body = body.to_vec();
        self.opening[usize::from(head[0] & 0x20 != 0)]
            .open(number.into(), head, &mut body, tag)
            .ok()?;
        Some(body)
    }
}

/// CONFIRM of a client with this configuration.
pub(crate) fn confirm(config: &Config) -> Vec<u8> {
    confirm_with(config, &Params::of(config, [0; 7]).encode())
}

pub(crate) fn confirm_with(config: &Config, params: &[u8; 40]) -> Vec<u8> {
    let mut table = Vec::new();
    config.channels.encode(&mut table);
    let provider = SimProvider::new(Seed::from_number(0));
    let mut frame = vec![0x08];
    frame.extend_from_slice(params);
    frame.extend_from_slice(&provider.sha256(&[&table])[..16]);
    frame
}

/// 65 bytes that look like a key but are no point on the curve.
pub(crate) fn no_point() -> PublicKey {
    let mut bytes = [7; 65];
    bytes[0] = 4;
    PublicKey(bytes)
}

/// The suite of number 1, which every HELLO offers.
pub(crate) const SUITE: Suite = Suite::Aes128Gcm;
