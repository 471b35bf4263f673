//! HELLO, RETRY, ACCEPT, REFUSE, VERSION, and their parameters.

use crypto::token::TokenHeader;
use crypto::{Certificate, PublicKey, Suite};
use serde_json::{Value, json};
use udp_proto::handshake::accept::{AcceptBody, AcceptClear, IdentityForm};
use udp_proto::handshake::hello::Hello;
use udp_proto::handshake::params::Params;
use udp_proto::handshake::reply::{Refuse, Retry, Versions};
use udp_proto::handshake::{Mode, accept, hello, reply};
use udp_proto::packet::{Cid, Kind};
use udp_proto::{VERSION_1, VERSION_TRIAL};

use crate::{Book, hex};

/// Writes some thousands of them, valid and damaged.
pub(crate) fn write(book: &mut Book) {
    for byte in 0..=u8::MAX {
        let name = match Kind::of(byte) {
            Kind::Hello => "hello",
            Kind::Retry => "retry",
            Kind::Accept => "accept",
            Kind::Refuse => "refuse",
            Kind::Version => "version",
            Kind::Protected => "packet",
            Kind::Envelope => "mesh",
            Kind::NotOurs => "nothing",
        };
        book.put("first_byte", &[byte], &json!(name));
    }
    for _ in 0..400 {
        let bytes = random_hello(book);
        each(book, &bytes, 3);
    }
    for _ in 0..250 {
        for bytes in [random_accept(book), random_reply(book)] {
            each(book, &bytes, 3);
        }
        let bytes = random_body(book);
        for bytes in [bytes.clone(), book.damage(&bytes)] {
            put_body(book, &bytes);
        }
        let bytes = random_params(book);
        for bytes in [bytes, damaged_params(book, bytes)] {
            put_params(book, &bytes);
        }
        let len = book.pick(&[28_usize, 142, 143, 200, 788, 789]);
        let mut bytes = book.bytes(len);
        bytes[0] = book.pick(&[1, 1, 1, 0, 2]);
        // Keeps the seconds in the range of a clock.
        bytes[21..24].fill(0);
        put_token(book, &bytes);
    }
}

/// Adds a datagram, and `count` damaged copies of it.
fn each(book: &mut Book, bytes: &[u8], count: usize) {
    put(book, bytes);
    for _ in 0..count {
        let damaged = book.damage(bytes);
        put(book, &damaged);
    }
}

/// Adds a handshake datagram of any kind.
pub(crate) fn put(book: &mut Book, bytes: &[u8]) {
    match bytes.first() {
        Some(&hello::FIRST_BYTE) => book.put("hello", bytes, &read_hello(bytes)),
        Some(&accept::FIRST_BYTE) => book.put("accept", bytes, &read_accept(bytes)),
        Some(&reply::RETRY) => {
            let read = Retry::decode(bytes).map_or(Value::Null, |retry| {
                json!({
                    "version": retry.version,
                    "hello_id": id(retry.hello_id),
                    "cookie": hex(&retry.cookie),
                })
            });
            book.put("retry", bytes, &read);
        }
        Some(&reply::REFUSE) => {
            let read = Refuse::decode(bytes).map_or(Value::Null, |refuse| {
                json!({
                    "version": refuse.version,
                    "hello_id": id(refuse.hello_id),
                    "reason": refuse.reason,
                    "mac": hex(&refuse.mac),
                })
            });
            book.put("refuse", bytes, &read);
        }
        Some(&reply::VERSION) => {
            let read = Versions::decode(bytes).map_or(Value::Null, |versions| {
                json!({
                    "hello_id": id(versions.hello_id),
                    "versions": versions.named(),
                })
            });
            book.put("version", bytes, &read);
        }
        // The endpoint checks the first byte before decoding.
        _ => {}
    }
}

fn id(number: u64) -> String {
    hex(&number.to_be_bytes())
}

fn read_hello(bytes: &[u8]) -> Value {
    // The endpoint knows the mode: in peer mode, a HELLO with an id of less than 4 bytes is
    // invalid.
    let is_of_a_mode =
        |hello: &Hello<'_>| hello.mode() != Mode::Peer || hello.client_cid.len() >= 4;
    let hello = Hello::decode(bytes).ok().filter(is_of_a_mode);
    hello.map_or(Value::Null, |hello| {
        let mode = match hello.mode() {
            Mode::Token => "token",
            Mode::Open => "open",
            Mode::Peer => "peer",
        };
        json!({
            "version": hello.version,
            "version_max": hello.version_max,
            "app_id": id(hello.app_id),
            "hello_id": id(hello.hello_id),
            "suites": hello.suites,
            "client_cid": hex(hello.client_cid.as_slice()),
            "ephemeral": hex(&hello.client_ephemeral.0),
            "cookie": hello.cookie.map(|cookie| hex(&cookie)),
            "psk_mac": hex(&hello.psk_mac),
            "token": hex(hello.token),
            "mode": mode,
        })
    })
}

fn read_accept(bytes: &[u8]) -> Value {
    AcceptClear::decode(bytes).map_or(Value::Null, |clear| {
        json!({
            "version": clear.version,
            "hello_id": id(clear.hello_id),
            "suite": clear.suite.code(),
            "server_cid": hex(clear.server_cid.as_slice()),
            "ephemeral": hex(&clear.server_ephemeral.0),
            "sealed_len": clear.sealed_len,
        })
    })
}

/// Adds the opened part of an ACCEPT.
pub(crate) fn put_body(book: &mut Book, bytes: &[u8]) {
    let read = AcceptBody::decode(bytes).map_or(Value::Null, |body| {
        json!({
            "form": body.identity.code(),
            "key": hex(body.identity.bytes()),
            "params": hex(&body.params),
            "signature": hex(&body.signature),
        })
    });
    book.put("accept_body", bytes, &read);
}

/// Adds parameters.
pub(crate) fn put_params(book: &mut Book, bytes: &[u8; 40]) {
    let read = Params::decode(bytes).map_or(Value::Null, |params| {
        json!({
            "idle_timeout": params.idle_timeout.as_millis(),
            "ack_delay_max": params.ack_delay_max.as_millis(),
            "keepalive": params.keepalive.as_millis(),
            "datagram_max": params.datagram_max,
            "receive_window": params.receive_window,
            "channels": params.channel_count,
            "boot_id": hex(&params.boot_id),
            "reset": params.reset_token.map(|token| hex(token.expose())),
        })
    });
    book.put("params", bytes, &read);
}

/// Adds a sealed token or a similar byte string.
fn put_token(book: &mut Book, bytes: &[u8]) {
    let read = TokenHeader::decode(bytes).map_or(Value::Null, |header| {
        json!({
            "key_id": header.key_id,
            "token_id": hex(&header.token_id.0),
            "expires_at": header.expires_at.as_secs(),
        })
    });
    book.put("token", bytes, &read);
}

fn version(book: &mut Book) -> u32 {
    book.pick(&[
        VERSION_1,
        VERSION_1,
        VERSION_1,
        VERSION_TRIAL,
        VERSION_1 + 1,
        0,
    ])
}

fn key(book: &mut Book) -> PublicKey {
    let mut key = book.array::<65>();
    key[0] = book.pick(&[4, 4, 4, 4, 4, 4, 4, 2]);
    PublicKey(key)
}

fn cid(book: &mut Book, lens: &[usize]) -> Cid {
    let len = book.pick(lens);
    Cid::from_slice(&book.bytes(len)).unwrap()
}

fn random_hello(book: &mut Book) -> Vec<u8> {
    let len = book.pick(&[0, 0, 1, 143, 146, 788, 999, 1_000]);
    let token = book.bytes(len);
    let mac = book.array();
    let hello = Hello {
        version: version(book),
        version_max: book.pick(&[VERSION_1, VERSION_1, VERSION_1 + 1, u32::MAX, VERSION_1 - 1]),
        app_id: book.generator.next_u64(),
        hello_id: book.generator.next_u64(),
        suites: book.pick(&[1, 3, 5, 7, 0xFFFF, 0x8001, 2, 6]),
        client_cid: cid(book, &[0, 1, 3, 4, 4, 5, 7, 8]),
        client_ephemeral: key(book),
        cookie: book.pick(&[true, false]).then(|| book.array()),
        psk_mac: book.pick(&[mac, mac, [0; 16]]),
        token: &token,
    };
    let mut bytes = Vec::new();
    hello.encode(&mut bytes);
    // A length of the connection id or cookie that does not match the rest.
    match book.generator.below(12) {
        0 => bytes[27] = book.pick(&[3, 8, 9, 255]),
        1 => bytes[101] = book.pick(&[0, 1, 31, 32, 33]),
        2 => bytes[1_199] = 1,
        _ => {}
    }
    bytes
}

fn random_accept(book: &mut Book) -> Vec<u8> {
    let clear = AcceptClear {
        version: version(book),
        hello_id: book.generator.next_u64(),
        suite: book.pick(&Suite::ALL),
        server_cid: cid(book, &[4, 8, 8, 5]),
        server_ephemeral: key(book),
        sealed_len: book.pick(&[121, 121, 186, 186, 120, 266]),
    };
    let mut bytes = Vec::new();
    clear.encode(&mut bytes);
    let sealed = book.bytes(clear.sealed_len.into());
    bytes.extend_from_slice(&sealed);
    match book.generator.below(8) {
        0 => bytes[13] = book.pick(&[0, 4]),
        1 => bytes[14] = book.pick(&[0, 4, 8]),
        _ => {}
    }
    bytes
}

fn certificate(book: &mut Book) -> Certificate {
    let mut bytes = book.array();
    (bytes[0], bytes[1]) = (1, 4);
    Certificate::parse(&bytes).unwrap()
}

fn random_body(book: &mut Book) -> Vec<u8> {
    let body = AcceptBody {
        identity: match book.generator.below(3) {
            0 => IdentityForm::Pinned,
            1 => IdentityForm::Certified(certificate(book)),
            _ => IdentityForm::RawKey(PublicKey(book.array())),
        },
        params: book.array(),
        signature: book.array(),
    };
    let mut bytes = Vec::new();
    body.encode(&mut bytes);
    bytes
}

fn random_reply(book: &mut Book) -> Vec<u8> {
    let hello_id = book.generator.next_u64();
    let mut bytes = Vec::new();
    match book.generator.below(3) {
        0 => {
            let cookie = book.array();
            Retry {
                version: version(book),
                hello_id,
                cookie,
            }
            .encode(&mut bytes);
        }
        1 => {
            let (reason, mac) = (book.pick(&[0, 12, 16, 21, 22, 0xFFFF]), book.array());
            Refuse {
                version: version(book),
                hello_id,
                reason,
                mac,
            }
            .encode(&mut bytes);
        }
        _ => {
            Versions::encode(hello_id, &[], &mut bytes);
            // Peers may support more versions, or none of ours.
            let count = book.pick(&[0, 1, 2, 8, 9]);
            bytes.truncate(9);
            bytes.push(count);
            for _ in 0..count {
                let version = book.pick(&[VERSION_1, VERSION_1 + 1, 7]);
                bytes.extend_from_slice(&version.to_be_bytes());
            }
        }
    }
    bytes
}

/// Returns parameters with each field in range.
fn random_params(book: &mut Book) -> [u8; 40] {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&book.pick(&[2_000_u32, 10_000, 120_000]).to_be_bytes());
    bytes.push(book.byte());
    bytes.extend_from_slice(&book.pick(&[200_u16, 1_000, 20_000]).to_be_bytes());
    bytes.extend_from_slice(&book.pick(&[1_200_u16, 1_500, u16::MAX]).to_be_bytes());
    bytes.extend_from_slice(&book.array::<4>());
    bytes.extend_from_slice(&1_024_u16.to_be_bytes());
    bytes.push(book.pick(&[1, 2, 32]));
    bytes.push(0);
    bytes.extend_from_slice(&book.array::<7>());
    let reset = book.array::<16>();
    bytes.extend_from_slice(&book.pick(&[reset, [0; 16]]));
    bytes.try_into().unwrap()
}

/// Sets one field to or past the limit of its range.
fn damaged_params(book: &mut Book, mut bytes: [u8; 40]) -> [u8; 40] {
    let (at, size, value): (usize, usize, u32) = book.pick(&[
        (0, 4, 1_999),
        (0, 4, 120_001),
        (4, 1, 0),
        (4, 1, 255),
        (5, 2, 199),
        (5, 2, 20_001),
        (7, 2, 1_199),
        (9, 4, 0),
        (9, 4, u32::MAX),
        (13, 2, 1_023),
        (13, 2, 1_025),
        (15, 1, 0),
        (15, 1, 33),
        (16, 1, 1),
    ]);
    bytes[at..at + size].copy_from_slice(&value.to_be_bytes()[4 - size..]);
    bytes
}
