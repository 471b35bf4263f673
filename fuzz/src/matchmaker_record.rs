//! Records between game servers and the matchmaker.

use matchmaker_core::record::{Assign, Reply, Verdict};

/// Decodes an assignment as a server does. An accepted one has one encoding.
pub fn assign(data: &[u8]) {
    let Ok(record) = Assign::decode(data) else {
        return;
    };
    let mut again = Vec::new();
    record.encode(&mut again);
    assert_eq!(again, data, "two ways to write {record:?}");
}

/// Decodes a reply to a server. An accepted one has one encoding.
pub fn reply(data: &[u8]) {
    let Ok(reply) = Reply::decode(data) else {
        return;
    };
    let mut again = Vec::new();
    reply.encode(&mut again);
    assert_eq!(again, data, "two ways to write {reply:?}");
}

/// Decodes a reply to the matchmaker. An accepted one has one encoding.
pub fn verdict(data: &[u8]) {
    let Ok(verdict) = Verdict::decode(data) else {
        return;
    };
    let mut again = Vec::new();
    verdict.encode(&mut again);
    assert_eq!(again, data, "two ways to write {verdict:?}");
}
