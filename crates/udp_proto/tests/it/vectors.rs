//! Handshakes and sessions byte for byte, with every key: what a client in another language needs.
//!
//! Each file of `testdata` is regenerated from seeds and compared. Keys are derived here from the
//! specification's formulas over HMAC and AEAD alone, and every packet is opened with them, so the
//! files are independent of the crate's own key schedule. `TICKWIRE_WRITE_VECTORS=1` rewrites them
//! after an intended change of the wire format.

use core::fmt::Write as _;
use std::path::PathBuf;

use crypto::{Aead, Identity, Provider, PublicKey, Role, Secret32, Suite, hkdf};
use netsim::provider::SimProvider;
use udp_proto::handshake::hello::Hello0;
use udp_proto::{
    CloseCode, Config, Credentials, Listen, Network, ServerIdentity, SessionId, Target,
};
use wire::{InstanceId, Seed};

use crate::certificate::{certificate, identity, roots};
use crate::direct::{CLIENT, Line, START, UNIX, again, without_rate_limits};
use crate::harness::{APP, INSTANCE, RELIABLE, SERVER, UNRELIABLE, address};
use crate::rogue::{Rogue, SUITE};

/// A file under construction: comments, and `name = hex` lines.
struct Vectors(String);

impl Vectors {
    fn new(title: &str) -> Self {
        Self(format!("# {title}\n"))
    }

    fn note(&mut self, text: &str) {
        writeln!(self.0, "\n# {text}").unwrap();
    }

    fn put(&mut self, name: &str, bytes: &[u8]) {
        write!(self.0, "{name} = ").unwrap();
        for byte in bytes {
            write!(self.0, "{byte:02x}").unwrap();
        }
        self.0.push('\n');
    }

    /// Compares with the committed file.
    fn check(&self, name: &str) {
        let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "testdata", name]
            .iter()
            .collect();
        if std::env::var_os("TICKWIRE_WRITE_VECTORS").is_some() {
            std::fs::write(&path, &self.0).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap();
        for (number, (found, expected)) in self.0.lines().zip(committed.lines()).enumerate() {
            assert_eq!(found, expected, "{name}, line {}", number + 1);
        }
        assert_eq!(self.0.len(), committed.len());
    }
}

/// The provider that an endpoint of [`Line`] has: 1 is the server's, 2 the client's.
fn twin(number: u64, purpose: u64) -> SimProvider {
    SimProvider::new(Seed::from_number(number).generator(purpose).seed())
}

/// The private scalar of `public`, drawn by a twin of its provider, and the key itself.
fn ephemeral(
    number: u64,
    purpose: u64,
    public: &[u8],
) -> ([u8; 32], <SimProvider as Provider>::Ephemeral) {
    for draws in 0..40 {
        let mut twins = [twin(number, purpose), twin(number, purpose)];
        let mut scalar = [0; 32];
        for provider in &mut twins {
            for _ in 0..draws {
                provider.random(&mut scalar).unwrap();
            }
        }
        let [mut one, mut other] = twins;
        one.random(&mut scalar).unwrap();
        let (key, found) = other.ephemeral(Role::Dialler).unwrap();
        if found.0 == public {
            return (scalar, key);
        }
    }
    panic!("another provider drew it");
}

/// HKDF-Expand of the specification: info = length, label, context.
fn expand<const LEN: usize>(secret: &Secret32, label: &str, context: &[u8]) -> [u8; LEN] {
    let mut info = u16::try_from(LEN).unwrap().to_be_bytes().to_vec();
    for part in [label.as_bytes(), context] {
        info.push(u8::try_from(part.len()).unwrap());
        info.extend_from_slice(part);
    }
    hkdf::expand(&twin(0, 0), secret, &info)
}

/// HKDF-Extract with a salt derived from the previous secret.
fn derive(above: &Secret32, input: &[u8; 32]) -> Secret32 {
    let salt: [u8; 32] = expand(above, "tw1 derived", &[]);
    hkdf::extract(&twin(0, 0), &salt, input)
}

/// The secrets that both ends of a session share.
struct Keys {
    client: Secret32,
    server: Secret32,
}

/// Derives and writes all keys of the handshake with this HELLO and ACCEPT. Also returns the
/// ACCEPT's sealed content.
fn schedule(
    file: &mut Vectors,
    number: u64,
    psk: Option<&Secret32>,
    hello: &[u8],
    accept: &[u8],
) -> (Keys, Vec<u8>) {
    let hashes = twin(0, 0);
    let (client_scalar, mut key) = ephemeral(number, 2, &hello[36..101]);
    let (server_scalar, _) = ephemeral(number, 1, &accept[23..88]);
    let server_public = PublicKey(accept[23..88].try_into().unwrap());
    let shared = hashes.agree(&mut key, &server_public).unwrap();
    let [a, b, c] = Hello0::new(hello).unwrap().parts();
    let th0 = hashes.sha256(&[a, b, c, &accept[..90]]);
    let th1 = hashes.sha256(&[a, b, c, accept]);
    let salt = hashes.sha256(&[b"tickwire udp 1"]);
    let s0 = hkdf::extract(&hashes, &salt, psk.map_or(&[0; 32][..], |psk| psk.expose()));
    let s1 = derive(&s0, shared.expose());
    let s2 = derive(&s1, &[0; 32]);

    file.note("Key schedule; scalars are big-endian, x_n and secrets as in section 3.6.");
    file.put("client_scalar", &client_scalar);
    file.put("server_scalar", &server_scalar);
    file.put("shared", shared.expose());
    file.put("th0", &th0);
    file.put("th1", &th1);
    file.put("s0", s0.expose());
    file.put("s1", s1.expose());
    let accept_key: [u8; 16] = expand(&s1, "tw1 accept key", &th0);
    let accept_iv: [u8; 12] = expand(&s1, "tw1 accept iv", &th0);
    file.put("accept_key", &accept_key);
    file.put("accept_iv", &accept_iv);
    let body = open(&accept_key, accept_iv, &accept[..90], &accept[90..]);
    file.note(match body[0] {
        1 => "What ACCEPT seals: form 1, certificate 145, parameters 40, signature 64.",
        _ => "What ACCEPT seals: form 1, key 0 or 65, parameters 40, signature 64.",
    });
    file.put("accept_body", &body);
    file.put("s2", s2.expose());
    let client = Secret32::new(expand(&s2, "tw1 c traffic", &th1));
    let server = Secret32::new(expand(&s2, "tw1 s traffic", &th1));
    file.put("exporter", &expand::<32>(&s2, "tw1 exporter", &th1));
    put_phase(file, "client", 0, &client);
    put_phase(file, "server", 0, &server);
    (Keys { client, server }, body)
}

/// Writes the keys of a phase.
fn put_phase(file: &mut Vectors, side: &str, phase: u32, secret: &Secret32) {
    let (key, iv): ([u8; 16], [u8; 12]) = (
        expand(secret, "tw1 key", &[]),
        expand(secret, "tw1 iv", &[]),
    );
    file.put(&format!("{side}_traffic_{phase}"), secret.expose());
    file.put(&format!("{side}_key_{phase}"), &key);
    file.put(&format!("{side}_iv_{phase}"), &iv);
}

/// Opens with AES-128-GCM, suite 1.
fn open(key: &[u8; 16], nonce: [u8; 12], head: &[u8], sealed: &[u8]) -> Vec<u8> {
    let mut padded = [0; 32];
    padded[..16].copy_from_slice(key);
    let (body, tag) = sealed.split_last_chunk().unwrap();
    let mut body = body.to_vec();
    twin(0, 0)
        .aead(SUITE, &Secret32::new(padded))
        .open(nonce, head, &mut body, tag)
        .expect("derived as the paper says");
    body
}

/// Writes a packet and its plaintext. Connection ids have 4 bytes, numbers 2.
fn packet(file: &mut Vectors, name: &str, secret: &Secret32, bytes: &[u8]) {
    let mut nonce: [u8; 12] = expand(secret, "tw1 iv", &[]);
    nonce[10] ^= bytes[5];
    nonce[11] ^= bytes[6];
    let key = expand(secret, "tw1 key", &[]);
    let plaintext = open(&key, nonce, &bytes[..7], &bytes[7..]);
    file.put(name, bytes);
    file.put(&format!("{name}_plain"), &plaintext);
}

/// Writes a whole record: handshake, keys, packets. Returns the ACCEPT's sealed content.
fn record(file: &mut Vectors, number: u64, psk: Option<&Secret32>, line: &Line) -> Vec<u8> {
    let find = |kind| {
        let mut found = line.record.iter().map(|(_, bytes)| bytes);
        found.find(|bytes| bytes[0] == kind)
    };
    file.note("Handshake, in the order of sending.");
    let mut hellos = 0;
    for (_, bytes) in &line.record {
        let name = match bytes[0] {
            0xC1 => {
                hellos += 1;
                format!("hello_{hellos}")
            }
            0xC2 => "retry".to_owned(),
            0xC3 => "accept".to_owned(),
            _ => continue,
        };
        file.put(&name, bytes);
    }
    let (hello, accept) = (find(0xC1).unwrap(), find(0xC3).unwrap());
    let (keys, body) = schedule(file, number, psk, hello, accept);
    file.note(
        "Packets: flags 1, connection id 4, number 2, then sealed. `_plain` is the plaintext.",
    );
    let mut sides = [("client", 0, 0, keys.client), ("server", 0, 0, keys.server)];
    for (is_client, bytes) in &line.record {
        if bytes[0] & 0xC0 != 0x40 {
            continue;
        }
        let (side, count, phase, secret) = &mut sides[usize::from(!is_client)];
        if u32::from(bytes[0] & 0x20 != 0) != *phase % 2 {
            *phase += 1;
            *secret = Secret32::new(expand(secret, "tw1 update", &[]));
            file.note(&format!("Phase {phase} of the {side}."));
            put_phase(file, side, *phase, secret);
        }
        packet(file, &format!("{side}_{count}"), secret, bytes);
        *count += 1;
    }
    assert!(sides[0].1 >= 4 && sides[1].1 >= 3);
    body
}

/// Messages of each kind, ACKs, and an orderly close.
fn converse(line: &mut Line, session: SessionId, theirs: SessionId) {
    let send_plaintext = |line: &mut Line, channel, message: &[u8]| {
        line.client
            .machine
            .send(line.now, session, channel, message)
            .unwrap();
    };
    line.run(40);
    send_plaintext(line, UNRELIABLE, b"unreliable");
    line.run(40);
    send_plaintext(line, RELIABLE, b"reliable");
    line.run(40);
    send_plaintext(line, RELIABLE, &[7; 1_500]);
    line.run(40);
    line.server
        .machine
        .send(line.now, theirs, RELIABLE, b"back")
        .unwrap();
    line.run(40);
    line.client
        .machine
        .close(line.now, session, CloseCode::App, b"bye")
        .unwrap();
    line.settle();
}

fn endpoints(file: &mut Vectors, line: &Line) {
    file.note("app_id, the server's instance id, unix time in milliseconds, both addresses.");
    file.put("app_id", &APP.0.to_be_bytes());
    file.put("instance_id", &INSTANCE.0.to_be_bytes());
    file.put("unix_ms", &UNIX.as_millis().to_be_bytes());
    file.put("client_address", CLIENT.as_bytes());
    file.put("server_address", SERVER.as_bytes());
    file.note("Identity of the server.");
    file.put(
        "server_identity_scalar",
        line.keys.identity.scalar().expose(),
    );
    file.put("server_identity_public", &line.keys.public().0);
}

#[test]
fn the_token_session_is_unchanged() {
    let mut line = Line::new(1);
    let credentials = line.token(42);
    let Credentials::Token { token, psk } = again(&credentials) else {
        panic!("a token");
    };
    let session = line.client.dial(line.now, &line.keys, credentials);
    line.settle();
    let theirs = line.server.sessions()[0];
    converse(&mut line, session, theirs);
    let mut file = Vectors::new("TWP/1 with a connect token: suite 1, 4-byte connection ids.");
    endpoints(&mut file, &line);
    file.note("Connect token: key (id 4, secret 32), PSK, the sealed token.");
    file.put("token_key", &*line.keys.token_key.to_bytes());
    file.put("psk", psk.expose());
    file.put("token", &token);
    record(&mut file, 1, Some(&psk), &line);
    file.check("token.hex");
}

/// The client goes to phase 1 and the server follows; then the server to phase 2, and the client
/// follows.
#[test]
fn the_session_with_new_keys_is_unchanged() {
    let mut line = Line::new(5);
    let credentials = line.token(42);
    let Credentials::Token { psk, .. } = again(&credentials) else {
        panic!("a token");
    };
    let session = line.client.dial(line.now, &line.keys, credentials);
    line.settle();
    let theirs = line.server.sessions()[0];
    line.run(900);
    line.client.machine.update_keys(line.now, session).unwrap();
    line.run(900);
    let (now, server) = (line.now, &mut line.server.machine);
    server.send(now, theirs, RELIABLE, b"phase 1").unwrap();
    line.run(900);
    let (now, server) = (line.now, &mut line.server.machine);
    server.update_keys(now, theirs).unwrap();
    converse(&mut line, session, theirs);
    let mut file = Vectors::new("TWP/1 with a connect token, and new keys twice.");
    endpoints(&mut file, &line);
    file.put("psk", psk.expose());
    record(&mut file, 5, Some(&psk), &line);
    assert!(file.0.contains("client_traffic_2") && file.0.contains("server_traffic_2"));
    file.check("key_update.hex");
}

/// The client trusts only a root key and checks both signatures as in section 3.3.
#[test]
fn the_certificate_session_is_unchanged() {
    let mut line = Line::with(6, without_rate_limits(), |listen| {
        let shown = certificate(90, *listen.identity.public_key());
        listen.with_certificate(shown)
    });
    let credentials = line.token(42);
    let Credentials::Token { psk, .. } = again(&credentials) else {
        panic!("a token");
    };
    let target = Target {
        addresses: vec![address(SERVER)],
        server: roots(&[90]),
        credentials,
    };
    let session = line.client.machine.connect(line.now, target).unwrap();
    line.settle();
    let theirs = line.server.sessions()[0];
    converse(&mut line, session, theirs);
    let mut file = Vectors::new("TWP/1 with a connect token and a server certificate.");
    endpoints(&mut file, &line);
    file.put("psk", psk.expose());
    file.note("The root key, and what it vouches for: version 1, key 65, instance id 8, end 7.");
    let root = identity(90);
    file.put("root_scalar", root.scalar().expose());
    file.put("root_public", &root.public_key().0);
    let shown = certificate(90, line.keys.public());
    let (sent_text, signature) = shown.as_bytes().split_last_chunk().unwrap();
    file.put("certificate_said", sent_text);
    file.put("certificate_signature", signature);
    let signed = [b"tw1 server cert", &APP.0.to_be_bytes()[..], sent_text].concat();
    assert!(twin(0, 0).verify(root.public_key(), &signed, signature));
    let body = record(&mut file, 6, Some(&psk), &line);
    assert_eq!((body[0], &body[1..146]), (1, &shown.as_bytes()[..]));
    let mut sent = line.record.iter().map(|(_, bytes)| &bytes[..]);
    let mut find = |kind| sent.find(|bytes| bytes[0] == kind).unwrap();
    let (hello, accept) = (Hello0::new(find(0xC1)).unwrap(), find(0xC3));
    let [a, b, c] = hello.parts();
    let (sealed, signature) = body.split_last_chunk().unwrap();
    let hash = twin(0, 0).sha256(&[a, b, c, &accept[..90], sealed]);
    let signed = [&b"tw1 accept signature"[..], &hash].concat();
    assert!(twin(0, 0).verify(&line.keys.public(), &signed, signature));
    file.check("certificate.hex");
}

#[test]
fn the_open_session_is_unchanged() {
    let mut line = Line::with(2, Config::default(), Listen::with_open_mode);
    let session = line.client.dial(line.now, &line.keys, Credentials::Open);
    line.settle();
    let theirs = line.server.sessions()[0];
    converse(&mut line, session, theirs);
    let mut file = Vectors::new("TWP/1 in open mode: RETRY, and 32 zero bytes for the PSK.");
    endpoints(&mut file, &line);
    record(&mut file, 2, None, &line);
    file.check("open.hex");
}

#[test]
fn the_peer_session_is_unchanged() {
    let secret = Secret32::new([7; 32]);
    let network = || Network {
        secret: Secret32::new([7; 32]),
        previous: None,
    };
    let mut line = Line::with(3, Config::default(), |listen| {
        listen.with_network(network())
    });
    let identity = Identity::generate(&mut twin(3, 3)).unwrap();
    let mut file = Vectors::new("TWP/1 in peer mode: RETRY, ACCEPT with a key, IDENTITY.");
    endpoints(&mut file, &line);
    file.note("Identity of the dialling node, its instance id, the network secret (the PSK).");
    file.put("client_identity_scalar", identity.scalar().expose());
    file.put("client_identity_public", &identity.public_key().0);
    file.put("client_instance_id", &9_u64.to_be_bytes());
    file.put("psk", secret.expose());
    let listen = Listen::new(identity, InstanceId(9)).with_network(network());
    line.client.machine.listen(START, listen).unwrap();
    let target = Target {
        addresses: vec![address(SERVER)],
        server: ServerIdentity::Node(line.keys.public().node_id()),
        credentials: Credentials::Peer,
    };
    let session = line.client.machine.connect(line.now, target).unwrap();
    line.settle();
    let theirs = line.server.sessions()[0];
    converse(&mut line, session, theirs);
    record(&mut file, 3, Some(&secret), &line);
    file.check("peer.hex");
}

#[test]
fn replies_without_a_session_are_unchanged() {
    let mut config = Config::default();
    config.sessions_max = 0;
    let mut line = Line::with(4, config, |listen| listen);
    let credentials = line.token(42);
    let Credentials::Token { psk, .. } = again(&credentials) else {
        panic!("a token");
    };
    let mut file = Vectors::new("TWP/1: VERSION and REFUSE.");
    let from = address(CLIENT);
    file.note("A HELLO of version 2, and the versions that the server speaks.");
    let newer = Rogue::with(1, &credentials, |hello| {
        (hello.version, hello.version_max) = (0x5457_0002, 0x5457_0002);
    });
    line.server.take(line.now, from, &newer.hello);
    file.put("hello_1", &newer.hello);
    file.put("version", &line.server.drain(line.now)[0].bytes);
    file.note(
        "A HELLO that is refused (FULL, 16); the mac is keyed by Expand(S0, \"tw1 refuse\").",
    );
    let refused = Rogue::new(2, &credentials);
    line.server.take(line.now, from, &refused.hello);
    let refuse = line.server.drain(line.now).remove(0).bytes;
    file.put("psk", psk.expose());
    file.put("hello_2", &refused.hello);
    file.put("refuse", &refuse);
    let hashes = twin(0, 0);
    let s0 = hkdf::extract(&hashes, &hashes.sha256(&[b"tickwire udp 1"]), psk.expose());
    for (label, covered, mac) in [
        ("tw1 refuse", refuse[..15].to_vec(), &refuse[15..]),
        (
            "tw1 hello",
            mac_input(&refused.hello),
            &refused.hello[134..150],
        ),
    ] {
        let key: [u8; 32] = expand(&s0, label, &[]);
        assert_eq!(&hashes.hmac_sha256(&key, &[&covered])[..16], mac, "{label}");
    }
    file.check("replies.hex");
}

/// The input of a HELLO's MAC: 134 bytes without the cookie, then length and token.
fn mac_input(hello: &[u8]) -> Vec<u8> {
    let token_len = usize::from(u16::from_be_bytes([hello[150], hello[151]]));
    let mut covered = hello[..134].to_vec();
    covered[101..].fill(0);
    covered.extend_from_slice(&hello[150..152 + token_len]);
    covered
}

#[test]
fn the_vectors_use_suite_1() {
    assert_eq!((SUITE, SUITE.code()), (Suite::Aes128Gcm, 1));
}
