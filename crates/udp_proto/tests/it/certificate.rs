//! Server certificates: which clients accept them, how rejections are reported, and how keys are
//! rotated without locking clients out.

use crypto::certificate::Subject;
use crypto::{Certificate, CertificateError, Identity, PublicKey};
use netsim::provider::SimProvider;
use udp_proto::{
    Config, ConnectError, ConnectFailure, Credentials, Listen, ListenError, Proof, ServerIdentity,
    Target,
};
use wire::{InstanceId, Seed, UnixTime};

use crate::direct::{CLIENT, Line, Party, START, UNIX, config, failures};
use crate::harness::{APP, INSTANCE, Keys, SERVER, address};

const END: UnixTime = UnixTime::from_secs(UNIX.as_secs() + 3_600);

pub(crate) fn identity(number: u64) -> Identity {
    Identity::generate(&mut SimProvider::new(Seed::from_number(number))).unwrap()
}

fn root(number: u64) -> PublicKey {
    *identity(number).public_key()
}

/// A certificate for `key`, signed by root key `number`.
pub(crate) fn certificate(number: u64, key: PublicKey) -> Certificate {
    issue(number, APP.0, (key, INSTANCE, END))
}

fn issue(
    number: u64,
    app_id: u64,
    (key, server_id, not_after): (PublicKey, InstanceId, UnixTime),
) -> Certificate {
    let subject = Subject {
        key,
        server_id,
        not_after,
    };
    let mut provider = SimProvider::new(Seed::from_number(number));
    Certificate::issue(&mut provider, &identity(number), app_id, &subject).unwrap()
}

/// Trusts root keys, for any server.
pub(crate) fn roots(numbers: &[u64]) -> ServerIdentity {
    ServerIdentity::Roots {
        keys: numbers.iter().map(|number| root(*number)).collect(),
        server: None,
    }
}

/// A line whose server presents `certificate` of its key.
pub(crate) fn line(number: u64, certificate: impl Fn(PublicKey) -> Certificate) -> Line {
    let config = config(|config| config.sessions_per_source_max = 64);
    Line::with(number, config, move |listen| {
        let shown = certificate(*listen.identity.public_key());
        listen.with_certificate(shown).with_open_mode()
    })
}

/// Dials with a token and returns how it failed.
fn attempt(line: &mut Line, server: ServerIdentity) -> Option<ConnectFailure> {
    let credentials = line.token(line.now.as_millis());
    attempt_with(line, server, credentials)
}

fn attempt_with(
    line: &mut Line,
    server: ServerIdentity,
    credentials: Credentials,
) -> Option<ConnectFailure> {
    let before = (line.client.sessions().len(), failures(&line.client).len());
    let target = Target {
        addresses: vec![address(SERVER)],
        server,
        credentials,
    };
    line.client.machine.connect(line.now, target).unwrap();
    line.run(100);
    if line.client.sessions().len() > before.0 {
        return None;
    }
    line.run(10_000);
    let failures = failures(&line.client);
    assert_eq!(failures.len(), before.1 + 1, "told once");
    assert_eq!(line.client.sessions().len(), before.0, "never both");
    failures.last().copied()
}

#[test]
fn b4_a_client_with_a_root_key_connects_to_a_certified_server() {
    let mut line = line(1, |key| certificate(90, key));
    let key = line.keys.public();
    let here = ServerIdentity::Roots {
        keys: vec![root(90)],
        server: Some(INSTANCE),
    };
    for server in [roots(&[90]), here] {
        assert_eq!(attempt(&mut line, server.clone()), None);
        assert_eq!(attempt_with(&mut line, server, Credentials::Open), None);
    }
    // A client that pins the key or its hash needs no root.
    for server in [
        ServerIdentity::Keys(vec![key]),
        ServerIdentity::Node(key.node_id()),
    ] {
        assert_eq!(attempt(&mut line, server), None);
    }
    for session in line.client.sessions() {
        assert_eq!(
            line.client.machine.proof(session),
            Some(&Proof::Server(key))
        );
    }
}

#[test]
fn twp_k4_b4_each_rejected_certificate_has_its_own_failure() {
    let late = UnixTime::from_secs(UNIX.as_secs() - 6);
    let other = InstanceId(1);
    let elsewhere = ServerIdentity::Roots {
        keys: vec![root(90)],
        server: Some(other),
    };
    let good = (INSTANCE, END);
    for (signer, app_id, (server_id, end), server, fault) in [
        (90, APP.0, good, roots(&[90]), None),
        (
            91,
            APP.0,
            good,
            roots(&[90]),
            Some(CertificateError::Issuer),
        ),
        (90, 1, good, roots(&[90]), Some(CertificateError::Issuer)),
        (
            90,
            APP.0,
            good,
            elsewhere,
            Some(CertificateError::OtherServer(INSTANCE)),
        ),
        (
            90,
            APP.0,
            (INSTANCE, late),
            roots(&[90]),
            Some(CertificateError::Expired),
        ),
    ] {
        let mut line = line(2, |key| issue(signer, app_id, (key, server_id, end)));
        let failure = fault.map(ConnectFailure::Certificate);
        assert_eq!(attempt(&mut line, server), failure, "{fault:?}");
        assert_eq!(line.server.sessions().len(), usize::from(fault.is_none()));
    }
}

#[test]
fn twp_k4_a_client_without_a_wall_clock_accepts_no_certificate() {
    let mut line = line(3, |key| certificate(90, key));
    let provider = SimProvider::new(Seed::from_number(77));
    line.client = Party::without_clock(CLIENT, Config::default(), provider);
    assert_eq!(
        attempt(&mut line, roots(&[90])),
        Some(ConnectFailure::Certificate(CertificateError::NoClock))
    );
}

#[test]
fn twp_k4_a_client_with_only_a_root_key_requires_a_certificate() {
    let mut line = Line::new(4);
    assert!(matches!(
        attempt(&mut line, roots(&[90])),
        Some(ConnectFailure::NotTheServer { rejected: 1.. })
    ));
    // The server's pinned key is not a root key and signs no certificates.
    let own = ServerIdentity::Roots {
        keys: vec![line.keys.public()],
        server: None,
    };
    assert!(matches!(
        attempt(&mut line, own),
        Some(ConnectFailure::NotTheServer { rejected: 1.. })
    ));
}

/// Root key rotation: a client that trusts both keys connects throughout, without a server restart.
#[test]
fn b4_root_keys_rotate_with_two() {
    let mut line = line(5, |key| certificate(90, key));
    assert_eq!(attempt(&mut line, roots(&[90, 91])), None);
    let renewed = certificate(91, line.keys.public());
    assert!(line.server.machine.set_certificate(Some(renewed)));
    assert_eq!(attempt(&mut line, roots(&[90, 91])), None);
    assert_eq!(attempt(&mut line, roots(&[91])), None);
    assert_eq!(
        attempt(&mut line, roots(&[90])),
        Some(ConnectFailure::Certificate(CertificateError::Issuer))
    );
    assert_eq!(line.server.closes(), [], "sessions stay");
}

/// Identity key rotation: a client that pins both keys connects to either.
#[test]
fn b4_identity_keys_rotate_with_two() {
    let (old, new) = (Keys::new(Seed::from_number(6)), identity(95));
    let both = ServerIdentity::Keys(vec![old.public(), *new.public_key()]);
    let mut line = Line::new(6);
    assert_eq!(attempt(&mut line, both.clone()), None);
    let pem = new.to_pem();
    let provider = SimProvider::new(Seed::from_number(96));
    line.server = Party::server(Config::default(), &old, provider, |listen| Listen {
        identity: Identity::from_pem(&pem).unwrap(),
        ..listen
    });
    line.server.machine.set_unix_time(line.now, UNIX);
    assert_eq!(attempt(&mut line, both), None);
    assert!(matches!(
        attempt(&mut line, ServerIdentity::Keys(vec![old.public()])),
        Some(ConnectFailure::NotTheServer { rejected: 1.. })
    ));
}

/// A certificate is renewed before it expires: clients accept either one.
#[test]
fn b4_a_certificate_is_renewed_while_the_server_runs() {
    let end = |seconds| UnixTime::from_secs(UNIX.as_secs() + seconds);
    let mut line = line(7, |key| issue(90, APP.0, (key, INSTANCE, end(10))));
    let tell = |line: &mut Line| {
        let unix = UNIX + line.now.saturating_since(START);
        line.client.machine.set_unix_time(line.now, unix);
    };
    assert_eq!(attempt(&mut line, roots(&[90])), None);
    line.run(20_000);
    tell(&mut line);
    assert_eq!(
        attempt(&mut line, roots(&[90])),
        Some(ConnectFailure::Certificate(CertificateError::Expired))
    );
    let renewed = issue(90, APP.0, (line.keys.public(), INSTANCE, end(3_600)));
    assert!(line.server.machine.set_certificate(Some(renewed)));
    tell(&mut line);
    assert_eq!(attempt(&mut line, roots(&[90])), None);
}

#[test]
fn a_server_presents_no_certificate_of_another_key_or_instance() {
    let mut line = Line::new(8);
    let own = line.keys.public();
    let foreign = [
        issue(90, APP.0, (root(91), INSTANCE, END)),
        issue(90, APP.0, (own, InstanceId(1), END)),
    ];
    for certificate in foreign {
        assert!(!line.server.machine.set_certificate(Some(certificate)));
        let listen = Listen::new(line.keys.identity(), INSTANCE).with_certificate(certificate);
        let refused = line.client.machine.listen(START, listen);
        assert_eq!(refused, Err(ListenError::Certificate));
    }
    assert!(line.server.machine.set_certificate(None));
    assert!(!line.client.machine.set_certificate(None), "it listens not");
    line.join(1);
}

#[test]
fn root_keys_are_one_or_two_each_once() {
    let mut line = Line::new(9);
    let mut refusal = |numbers: &[u64]| {
        let target = Target {
            addresses: vec![address(SERVER)],
            server: roots(numbers),
            credentials: Credentials::Open,
        };
        line.client.machine.connect(line.now, target).err()
    };
    assert_eq!(refusal(&[]), Some(ConnectError::RootKeys(0)));
    assert_eq!(refusal(&[1, 2, 3]), Some(ConnectError::RootKeys(3)));
    assert_eq!(refusal(&[1, 1]), Some(ConnectError::ServerKeyRepeated));
    assert_eq!(refusal(&[1, 2]), None);
}
