//! Writes the first inputs of each corpus from the encoders, so that mutations start at valid
//! bytes.
//!
//! Run `BLESS=1 cargo test -p tickwire-fuzz --test seeds` after a wire format has changed.
#![cfg(test)]

mod channels;
mod headers;
mod matches;
mod mesh;

use std::fs;
use std::path::Path;

use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;

use crypto::client_grant::ServerKeys;
use crypto::token::{TokenGrant, UserData};
use crypto::{AddressList, ClientGrant, Identity, Initial, PublicKey, Secret32, Suite};
use fuzz::crypto_token::{AUDIENCE, NOW, key};
use netsim::provider::SimProvider;
use udp_proto::VERSION_1;
use udp_proto::channel::{MsgFrame, MsgHeader};
use udp_proto::fragment::Position;
use udp_proto::frame::{AckFrame, Frame};
use udp_proto::handshake::accept::{AcceptBody, AcceptClear, IdentityForm};
use udp_proto::handshake::hello::{Hello, Hello0, set_cookie, set_psk_mac};
use udp_proto::handshake::params::Params;
use udp_proto::handshake::reply::{Refuse, Retry, Versions};
use udp_proto::packet::{Cid, Header, KeyPhase, PacketNumber, TruncatedNumber};
use udp_proto::{ChannelId, Config};
use wire::{ClientId, MatchId, Seat, Seed, Team};

/// Function, name of the input, bytes.
type Input = (&'static str, &'static str, Vec<u8>);

#[test]
fn seeds_are_what_the_encoders_write() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let blesses = std::env::var_os("BLESS").is_some();
    let inputs = [
        texts(),
        tokens(),
        handshakes(),
        packets(),
        scripts(),
        stateful(),
        mesh::all(),
        headers::all(),
        channels::all(),
        matches::datagrams(),
        matches::clients(),
        matches::servers(),
        matches::snapshots(),
        matches::replays(),
        matches::matchmaker(),
    ]
    .concat();
    for (function, name, bytes) in inputs {
        let path = root.join(function).join(format!("seed_{name}"));
        if blesses {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &bytes).unwrap();
        }
        let written = fs::read(&path).unwrap_or_default();
        assert!(
            written == bytes,
            "{} is not what the encoder writes now: BLESS=1 writes it",
            path.display()
        );
    }
}

fn provider() -> SimProvider {
    SimProvider::new(Seed::from_number(9))
}

fn identity() -> Identity {
    Identity::generate(&mut provider()).unwrap()
}

fn grant(addresses: usize, user: usize) -> TokenGrant {
    let list: Vec<_> = (1..)
        .map(|host| SocketAddr::from(([192, 0, 2, host], 7_777)))
        .take(addresses)
        .collect();
    TokenGrant {
        issued_at: NOW,
        expires_at: NOW + Duration::from_secs(60),
        client_id: ClientId(5),
        psk: Secret32::new([6; 32]),
        server_id: AUDIENCE.server_id,
        addresses: AddressList::new(&list).unwrap(),
        match_id: MatchId([7; 16]),
        seat: Seat(8),
        team: Team(9),
        user: UserData::new(&vec![0x55; user]).unwrap(),
    }
}

fn texts() -> Vec<Input> {
    let identity = identity();
    let public = *identity.public_key();
    let token = key()
        .seal(&mut provider(), AUDIENCE.app_id, &grant(1, 0))
        .unwrap();
    let word = ClientGrant {
        app_id: AUDIENCE.app_id,
        expires_at: NOW,
        psk: Secret32::new([6; 32]),
        server_keys: ServerKeys::new(&[public]).unwrap(),
        addresses: grant(2, 0).addresses,
        token,
    }
    .to_text();
    let digits = public.to_string();
    vec![
        ("crypto_client_grant", "one_key", word.as_bytes().to_vec()),
        ("crypto_client_grant", "prefix_only", b"TWG1".to_vec()),
        (
            "crypto_identity_pem",
            "pkcs8",
            identity.to_pem().as_bytes().to_vec(),
        ),
        (
            "crypto_identity_pem",
            "sec1_without_key",
            b"-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----\n".to_vec(),
        ),
        ("crypto_public_key", "digits", digits.into_bytes()),
        (
            "crypto_public_key",
            "pem",
            public.to_pem().unwrap().into_bytes(),
        ),
        ("crypto_public_key", "bytes", public.0.to_vec()),
    ]
}

fn tokens() -> Vec<Input> {
    let seal = |addresses, user| {
        key()
            .seal(&mut provider(), AUDIENCE.app_id, &grant(addresses, user))
            .unwrap()
            .as_bytes()
            .to_vec()
    };
    let v4 = |host: u8| Ipv4Addr::new(192, 0, 2, host).to_ipv6_mapped().octets();
    let body = |family: u8, user: &[u8]| {
        let mut body = Vec::new();
        body.extend_from_slice(&NOW.as_millis().to_be_bytes());
        body.extend_from_slice(&5_u64.to_be_bytes());
        body.extend_from_slice(&[6; 32]);
        body.extend_from_slice(&AUDIENCE.server_id.0.to_be_bytes());
        body.extend_from_slice(&[1, family]);
        body.extend_from_slice(&v4(1));
        body.extend_from_slice(&7_777_u16.to_be_bytes());
        body.push(0);
        body.extend_from_slice(&[7; 16]);
        body.extend_from_slice(&[0, 8, 9]);
        body.extend_from_slice(&u16::try_from(user.len()).unwrap().to_be_bytes());
        body.extend_from_slice(user);
        body
    };
    vec![
        ("crypto_token_open", "shortest", seal(1, 0)),
        ("crypto_token_open", "longest", seal(8, 512)),
        ("crypto_token_body", "ipv4", body(4, b"")),
        (
            "crypto_token_body",
            "ipv6_and_user_data",
            body(6, b"hat=red"),
        ),
    ]
}

/// Returns a HELLO for the app id of the fuzz functions, with its MAC if there is a PSK.
fn hello(token: &[u8], psk: Option<[u8; 32]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    Hello {
        version: VERSION_1,
        version_max: VERSION_1,
        app_id: AUDIENCE.app_id,
        hello_id: 0x0102_0304_0506_0708,
        suites: 7,
        client_cid: Cid::from_slice(&[1, 2, 3, 4]).unwrap(),
        client_ephemeral: *identity().public_key(),
        cookie: None,
        psk_mac: [0; 16],
        token,
    }
    .encode(&mut bytes);
    if let Some(psk) = psk {
        let initial = Initial::new(&provider(), Some(&Secret32::new(psk)));
        let parts = Hello0::new(&bytes).unwrap();
        let mac = initial.hello_mac(&provider(), &parts.mac_parts());
        set_psk_mac(&mut bytes, &mac);
    }
    bytes
}

fn token_hello() -> Vec<u8> {
    let token = key()
        .seal(&mut provider(), AUDIENCE.app_id, &grant(1, 0))
        .unwrap();
    hello(token.as_bytes(), Some([6; 32]))
}

fn accept(identity: IdentityForm) -> (Vec<u8>, Vec<u8>) {
    let (mut clear, mut body) = (Vec::new(), Vec::new());
    AcceptClear {
        version: VERSION_1,
        hello_id: 0x0102_0304_0506_0708,
        suite: Suite::Aes128Gcm,
        server_cid: Cid::from_slice(&[5, 6, 7, 8]).unwrap(),
        server_ephemeral: PublicKey(identity_key()),
        sealed_len: identity.sealed_len(),
    }
    .encode(&mut clear);
    AcceptBody {
        identity,
        params: params(),
        signature: [6; 64],
    }
    .encode(&mut body);
    (clear, body)
}

fn identity_key() -> [u8; 65] {
    identity().public_key().0
}

fn params() -> [u8; 40] {
    Params::of(&Config::default(), [1, 2, 3, 4, 5, 6, 7]).encode()
}

fn replies() -> [Vec<u8>; 3] {
    let hello_id = 0x0102_0304_0506_0708;
    let mut out: [Vec<u8>; 3] = Default::default();
    let [retry, refuse, versions] = &mut out;
    let cookie = [9; 32];
    Retry {
        version: VERSION_1,
        hello_id,
        cookie,
    }
    .encode(retry);
    Refuse {
        version: VERSION_1,
        hello_id,
        reason: 16,
        mac: [3; 16],
    }
    .encode(refuse);
    Versions::encode(hello_id, &[VERSION_1], versions);
    out
}

fn handshakes() -> Vec<Input> {
    let mut with_cookie = hello(&[], None);
    set_cookie(&mut with_cookie, &[9; 32]);
    let pinned = accept(IdentityForm::Pinned);
    let raw = accept(IdentityForm::RawKey(PublicKey(identity_key())));
    let certificate = crypto::Certificate::parse(&[1; 145]).unwrap();
    let certified = accept(IdentityForm::Certified(certificate));
    // As transmitted: the body is followed by a tag of 16 bytes.
    let whole = |(clear, body): &(Vec<u8>, Vec<u8>)| [&clear[..], body, &[0; 16]].concat();
    let [retry, refuse, versions] = replies();
    vec![
        ("udp_hello", "token", token_hello()),
        ("udp_hello", "peer", hello(&[], Some([3; 32]))),
        ("udp_hello", "open_with_cookie", with_cookie),
        ("udp_accept", "pinned", whole(&pinned)),
        ("udp_accept", "raw_key", whole(&raw)),
        ("udp_accept", "certificate", whole(&certified)),
        ("udp_accept", "body", raw.1),
        ("udp_replies", "retry", retry),
        ("udp_replies", "refuse", refuse),
        ("udp_replies", "versions", versions),
        ("udp_params", "default", params().to_vec()),
    ]
}

fn ack(low: u16, run: u16, bits: &[u8]) -> Frame<'_> {
    Frame::Ack(AckFrame {
        largest: TruncatedNumber::Two(low),
        delay: 3,
        run,
        bits,
    })
}

fn message(channel: u8, id: Option<u16>, fragment: Option<(u16, u16)>, data: &[u8]) -> Frame<'_> {
    Frame::Message(MsgFrame {
        header: MsgHeader {
            channel: ChannelId(channel),
            id,
            fragment: fragment.map(|(index, count)| Position { index, count }),
        },
        data,
    })
}

fn encoded(frames: &[Frame<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    for frame in frames {
        frame.encode(&mut out);
    }
    out
}

fn packets() -> Vec<Input> {
    let header = |cid: &[u8], number: u64, expected: u64| {
        let number = PacketNumber::new(number).unwrap();
        let mut out = vec![u8::try_from(cid.len()).unwrap()];
        Header {
            key_phase: KeyPhase::Even,
            destination: Cid::from_slice(cid).unwrap(),
            number: number.truncate(number.form_after(PacketNumber::ZERO).unwrap()),
        }
        .encode(&mut out);
        out.extend_from_slice(&[0xAA; 20]);
        out.extend_from_slice(&(expected << 2).to_be_bytes());
        out
    };
    let key = identity_key();
    let control = encoded(&[
        ack(7, 2, &[0x81]),
        Frame::Window(1 << 20),
        Frame::Confirm {
            params: &params(),
            channel_digest: &[4; 16],
        },
        Frame::Identity {
            public_key: &key,
            signature: &[5; 64],
        },
        Frame::PathChallenge([1; 8]),
        Frame::PathResponse([1; 8]),
        Frame::Time(77),
        Frame::Ping,
    ]);
    let long = [7; 1_120];
    let messages = encoded(&[
        message(0, None, None, b"state"),
        message(1, Some(0), None, b"order"),
        message(0, Some(1), Some((0, 2)), &long),
        message(1, Some(1), Some((1, 2)), b"tail"),
    ]);
    let end = Frame::Close {
        code: 1,
        reason: b"bye",
    };
    vec![
        ("udp_packet_header", "short", header(&[], 5, 5)),
        (
            "udp_packet_header",
            "long",
            header(&[1, 2, 3, 4], 70_000, 69_000),
        ),
        ("udp_frames", "control", control),
        ("udp_frames", "messages", messages),
        ("udp_frames", "close", encoded(&[end])),
    ]
}

/// A plaintext of at most 255 bytes after `op` and its length.
fn plain(op: u8, frames: &[Frame<'_>]) -> Vec<u8> {
    let mut out = encoded(frames);
    out.splice(0..0, [op, u8::try_from(out.len()).unwrap()]);
    out
}

/// Like [`plain`], followed by the header of a message without a length; the function appends 1,120
/// bytes.
fn long(op: u8, header: [u8; 7]) -> Vec<u8> {
    [&[op, 7][..], &header].concat()
}

/// Returns a datagram in the script format of `udp_first_bytes`.
fn fed(op: u8, datagram: &[u8]) -> Vec<u8> {
    let len = u16::try_from(datagram.len()).unwrap().to_be_bytes();
    [&[op], &len[..], datagram].concat()
}

fn scripts() -> Vec<Input> {
    let [retry, refuse, versions] = replies();
    let strangers = [
        fed(0, &token_hello()),
        fed(0, &token_hello()),
        fed(0x40, &token_hello()),
        fed(2, &hello(&[], None)),
        fed(2, &hello(&[], Some([3; 32]))),
        fed(0, &[0x40; 60]),
    ];
    let to_client = [fed(5, &retry), fed(5, &refuse), fed(5, &versions)];
    // HELLO, RETRY, HELLO, ACCEPT, CONFIRM, then messages, a loss, a repeat and a CLOSE.
    let pair = [
        0, 0, 0, 0, 0, 0, 0x25, 0x2D, 0, 0, 0x14, 0xFD, 3, 0, 0, 0xF4, 0, 2, 0, 0, 0xF4, 0, 0, 6,
        0, 9, 7, 0, 0, 0xF7, 0, 0, 0xF4, 0, 0,
    ];
    vec![
        ("udp_first_bytes", "to_server", strangers.concat()),
        ("udp_first_bytes", "to_client", to_client.concat()),
        ("udp_pair", "talk", pair.to_vec()),
        ("udp_pair", "nothing_arrives", vec![0xF4; 60]),
    ]
}

fn stateful() -> Vec<Input> {
    // Sends 16 packets, gets an ACK of packet 3 and the range below, waits, and gets an older
    // packet's ACK.
    let acks = [
        0x78,
        6,
        0,
        15,
        0,
        3,
        0,
        2,
        1,
        0x81,
        4 | 0x10,
        0x3E,
        0,
        5,
        0,
        3,
        0,
        0,
        0,
    ];
    // On the reliable channel, message 0 in two fragments, the second first; then message 1.
    let inbox = [
        plain(3, &[message(1, Some(0), Some((1, 2)), b"tail")]),
        long(3 | 8, [0xC1, 0, 0, 0, 0, 0, 2]),
        plain(
            3,
            &[
                message(1, Some(1), None, b"next"),
                message(0, None, None, b"state"),
            ],
        ),
        vec![1 | 0x78, 2, 0xF8],
    ];
    // The same inside sealed packets, with a message of the server in between.
    let session = [
        plain(4, &[message(1, Some(0), Some((1, 2)), b"tail")]),
        long(4 | 8, [0xC1, 0, 0, 0, 0, 0, 2]),
        vec![3 | 0x28, 1, 2, 3 | 0x08, 0x50],
        plain(4, &[ack(0, 0, &[]), Frame::Ping]),
        plain(
            4,
            &[Frame::Window(1 << 30), message(0, None, None, b"state")],
        ),
        vec![0xF8],
        plain(
            4,
            &[Frame::Close {
                code: 1,
                reason: b"",
            }],
        ),
    ];
    vec![
        ("udp_ack_apply", "two_acks", acks.to_vec()),
        ("udp_inbox", "out_of_order", inbox.concat()),
        ("udp_inbox", "all_kinds", all_kinds()),
        ("udp_session", "talk", session.concat()),
    ]
}

/// Inputs of a receiver of sequenced and unordered messages.
fn all_kinds() -> Vec<u8> {
    // Sequenced: 5 whole, 4 after it, the start of 7, 8 whole. Unordered: 2, 0 in two fragments, 2.
    [
        plain(
            3,
            &[
                message(2, Some(5), None, b"new"),
                message(2, Some(4), None, b"old"),
            ],
        ),
        long(3 | 8, [0xC2, 0, 7, 0, 0, 0, 2]),
        plain(
            3,
            &[
                message(2, Some(8), None, b"newest"),
                message(3, Some(2), None, b"two"),
                message(3, Some(0), Some((1, 2)), b"tail"),
            ],
        ),
        long(3 | 8, [0xC3, 0, 0, 0, 0, 0, 2]),
        plain(3, &[message(3, Some(2), None, b"two")]),
        vec![1 | 0x78, 2, 0xF8],
    ]
    .concat()
}
