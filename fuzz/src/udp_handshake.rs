//! Handshake datagrams and their parameters.

use udp_proto::handshake::accept::{AcceptBody, AcceptClear, CLEAR_LEN};
use udp_proto::handshake::hello::{
    COOKIE_LEN, FIRST_BYTE, Hello, Hello0, HelloError, LEN, Preamble, clear_cookie, set_cookie,
};
use udp_proto::handshake::params::Params;
use udp_proto::handshake::reply::{Refuse, Retry, Versions};

/// Decodes a HELLO. Zeros pad it to its length, so that short inputs reach the fields.
pub fn hello(data: &[u8]) {
    let mut datagram = data.to_vec();
    if datagram.len() < LEN {
        datagram.resize(LEN, 0);
    }
    // The caller has already checked the datagram's kind.
    if let Some(first) = datagram.first_mut() {
        *first = FIRST_BYTE;
    }
    let decoded = Hello::decode(&datagram);
    let Some(hello0) = Hello0::new(&datagram) else {
        assert_eq!(decoded.err(), Some(HelloError::Length));
        return;
    };
    assert_eq!(hello0.parts().concat().len(), LEN);
    assert!(hello0.mac_parts().concat().len() <= LEN);
    let Ok(hello) = decoded else {
        return;
    };
    let preamble = Preamble::decode(&datagram).expect("a HELLO has one");
    assert_eq!(preamble.hello_id, hello.hello_id);
    let mut again = Vec::new();
    hello.encode(&mut again);
    assert_eq!(again, datagram, "two ways to write one HELLO");

    // The attempt's identity does not cover the cookie.
    let before = hello0.parts().concat();
    set_cookie(&mut again, &[0xAA; COOKIE_LEN]);
    let cookie = Hello::decode(&again).map(|hello| hello.cookie);
    assert_eq!(cookie, Ok(Some([0xAA; COOKIE_LEN])));
    let with_cookie = Hello0::new(&again).map(|hello0| hello0.parts().concat());
    assert_eq!(with_cookie.as_ref(), Some(&before));
    clear_cookie(&mut again);
    assert_eq!(again, before);
}

/// Decodes the unencrypted part of an ACCEPT, and the sealed part as if it had been opened.
pub fn accept(data: &[u8]) {
    if let Ok(clear) = AcceptClear::decode(data) {
        let mut again = Vec::new();
        clear.encode(&mut again);
        // The caller has already checked the datagram's kind.
        assert_eq!(again.get(1..), data.get(1..CLEAR_LEN));
        assert_eq!(data.len(), CLEAR_LEN + usize::from(clear.sealed_len));
    }
    for opened in [data, data.get(CLEAR_LEN..).unwrap_or_default()] {
        if let Ok(body) = AcceptBody::decode(opened) {
            let mut again = Vec::new();
            body.encode(&mut again);
            assert_eq!(again, opened, "two ways to write one body");
            assert_eq!(opened.len() + 16, usize::from(body.identity.sealed_len()));
        }
    }
}

/// Decodes RETRY, REFUSE and VERSION.
pub fn replies(data: &[u8]) {
    let mut again = Vec::new();
    if let Ok(retry) = Retry::decode(data) {
        retry.encode(&mut again);
        assert_eq!(again.get(1..), data.get(1..));
        again.clear();
    }
    if let Ok(refuse) = Refuse::decode(data) {
        refuse.encode(&mut again);
        assert_eq!(again.get(1..), data.get(1..));
        again.clear();
    }
    if let Ok(versions) = Versions::decode(data) {
        assert!(data.len() >= 14 && data.len() <= 42);
        Versions::encode(versions.hello_id, versions.named(), &mut again);
        assert_eq!(again.get(1..), data.get(1..));
    }
}

/// Decodes parameters. Accepted ones have one encoding.
pub fn params(data: &[u8]) {
    let mut bytes = [0; udp_proto::handshake::params::LEN];
    for (to, from) in bytes.iter_mut().zip(data) {
        *to = *from;
    }
    if let Ok(params) = Params::decode(&bytes) {
        let again = params.encode();
        assert_eq!(again, bytes);
    }
}
