//! What game servers and matchmaker say to each other.

use matchmaker_core::record::{Assign, Reply, Verdict};

/// What a server reads is written in one way only.
pub fn assign(data: &[u8]) {
    let Ok(record) = Assign::decode(data) else {
        return;
    };
    let mut again = Vec::new();
    record.encode(&mut again);
    assert_eq!(again, data, "two ways to write {record:?}");
}

/// What a server is answered is written in one way only.
pub fn reply(data: &[u8]) {
    let Ok(reply) = Reply::decode(data) else {
        return;
    };
    let mut again = Vec::new();
    reply.encode(&mut again);
    assert_eq!(again, data, "two ways to write {reply:?}");
}

/// What a matchmaker is answered is written in one way only.
pub fn verdict(data: &[u8]) {
    let Ok(verdict) = Verdict::decode(data) else {
        return;
    };
    let mut again = Vec::new();
    verdict.encode(&mut again);
    assert_eq!(again, data, "two ways to write {verdict:?}");
}
