//! The key schedule, and the unencrypted values derived from it.

use crypto::key_schedule::{Label, expand};
use crypto::{Initial, Iv, Provider, PublicKey, Role, Secret32, Suite};
use serde_json::{Value, json};
use udp_proto::VERSION_1;
use udp_proto::handshake::accept::{AcceptClear, CLEAR_LEN};
use udp_proto::handshake::hello::{Hello, Hello0, set_cookie};
use udp_proto::handshake::reply::Refuse;
use udp_proto::packet::Cid;
use wire::Seed;

use crate::talk::{Tap, Tapped};
use crate::{Book, hex};

/// Writes some hundreds of them.
pub(crate) fn write(book: &mut Book) {
    for number in 0..60 {
        handshake(book, number);
    }
    for _ in 0..100 {
        let (bytes, number) = (book.array(), book.generator.next_u64() >> 2);
        let nonce = Iv::take(&mut bytes.clone()).nonce(number);
        let more = json!({ "number": number });
        book.put_with("nonce", &bytes, &more, &json!(hex(&nonce)));
    }
}

/// Adds one handshake: both MACs and every key.
fn handshake(book: &mut Book, number: u64) {
    let tap = Tap::default();
    let mut provider = Tapped::new(Seed::from_number(number), &tap);
    let psk = Secret32::new(book.array());
    let (mut client, client_key) = provider.ephemeral(Role::Dialler).unwrap();
    let (_, server_key) = provider.ephemeral(Role::Accepter).unwrap();
    let hello = hello(book, client_key);
    let initial = Initial::new(&provider, Some(&psk));
    let mac = initial.hello_mac(&provider, &Hello0::new(&hello).unwrap().mac_parts());
    let secret = json!({ "psk": hex(psk.expose()) });
    book.put_with("hello_mac", &hello, &secret, &json!(hex(&mac)));
    refuse(book, &provider, &psk);
    let shared = provider.agree(&mut client, &server_key).unwrap();
    let suite = book.pick(&Suite::ALL);
    let accept = accept(book, server_key, suite);
    let first = schedule(&provider, &tap, &initial, (&shared, suite, &hello, &accept));
    let more = json!({
        "psk": hex(psk.expose()),
        "shared": hex(shared.expose()),
        "hello": hex(&hello),
        "key_len": suite.key_len(),
    });
    book.put_with("traffic", &accept, &more, &first);

    let (node, cid): ([u8; 32], [u8; 8]) = (book.array(), book.array());
    let context: [u8; 40] = [&node[..], &cid].concat().try_into().unwrap();
    let token = expand(&provider, &psk, Label::new("tw1 reset"), &context);
    let more = json!({ "node": hex(&node), "cid": hex(&cid) });
    let first = json!(hex(&token.expose()[..16]));
    book.put_with("reset_token", psk.expose(), &more, &first);
}

/// Returns a HELLO with a cookie, which neither the MAC nor a hash covers.
fn hello(book: &mut Book, client_ephemeral: PublicKey) -> Vec<u8> {
    let len = book.pick(&[0_usize, 143, 1_000]);
    let token = book.bytes(len);
    let mut hello = Vec::new();
    Hello {
        version: VERSION_1,
        version_max: VERSION_1,
        app_id: book.generator.next_u64(),
        hello_id: book.generator.next_u64(),
        suites: 7,
        client_cid: Cid::from_slice(&book.bytes(4)).unwrap(),
        client_ephemeral,
        cookie: None,
        psk_mac: book.array(),
        token: &token,
    }
    .encode(&mut hello);
    set_cookie(&mut hello, &book.array());
    hello
}

/// Adds a REFUSE with its MAC.
fn refuse(book: &mut Book, provider: &Tapped, psk: &Secret32) {
    let refuse = Refuse {
        version: VERSION_1,
        hello_id: book.generator.next_u64(),
        reason: 16,
        mac: [0; 16],
    };
    let initial = Initial::new(provider, Some(psk));
    let mac = initial.refuse_mac(provider, &[&refuse.covered()]);
    let mut bytes = Vec::new();
    Refuse { mac, ..refuse }.encode(&mut bytes);
    let secret = json!({ "psk": hex(psk.expose()) });
    book.put_with("refuse_mac", &bytes, &secret, &json!(hex(&mac)));
}

/// Returns an ACCEPT with arbitrary sealed bytes.
fn accept(book: &mut Book, server_ephemeral: PublicKey, suite: Suite) -> Vec<u8> {
    let mut accept = Vec::new();
    AcceptClear {
        version: VERSION_1,
        hello_id: book.generator.next_u64(),
        suite,
        server_cid: Cid::from_slice(&book.bytes(8)).unwrap(),
        server_ephemeral,
        sealed_len: 121,
    }
    .encode(&mut accept);
    let sealed = book.bytes(121);
    accept.extend_from_slice(&sealed);
    accept
}

/// Derives every key from the shared secrets.
fn schedule(
    provider: &Tapped,
    tap: &Tap,
    initial: &Initial,
    (shared, suite, hello, accept): (&Secret32, Suite, &[u8], &[u8]),
) -> Value {
    let [a, b, c] = Hello0::new(hello).unwrap().parts();
    let th0 = provider.sha256(&[a, b, c, &accept[..CLEAR_LEN]]);
    let th1 = provider.sha256(&[a, b, c, accept]);
    let agreed = initial.agree(provider, shared);
    tap.clear();
    let mut body = vec![0; 20];
    let accept_key = agreed.accept_key(provider, suite, &th0);
    accept_key.seal(&[], &mut body, &mut [0; 16]);
    let key_of_accept = [tap.keys()[0].clone(), tap.nonces()[0].clone()];
    let secrets = agreed.traffic(provider, &th1);
    let [client, server] = [&secrets.client, &secrets.server].map(|first| {
        let mut found = Vec::new();
        for secret in [first, &first.next(provider)] {
            tap.clear();
            let (_, iv) = secret.expand(provider, suite);
            found.extend([tap.keys()[0].clone(), hex(&iv.nonce(0))]);
        }
        found
    });
    let label = Label::new("tw1 test");
    let exported = secrets.exporter.expand(provider, label, b"context");
    json!({
        "accept": key_of_accept,
        "client": client,
        "server": server,
        "exported": hex(exported.expose()),
    })
}
