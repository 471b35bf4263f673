//! What the ends of a hub link read.

use hub::record::{ToHub, ToNode};

/// What a hub reads is written in one way only.
pub fn to_hub(data: &[u8]) {
    let Ok(record) = ToHub::decode(data) else {
        return;
    };
    let mut again = Vec::new();
    record.encode(&mut again);
    assert_eq!(again, data, "two ways to write {record:?}");
}

/// What a node reads is written in one way only.
pub fn to_node(data: &[u8]) {
    let Ok(record) = ToNode::decode(data) else {
        return;
    };
    let mut again = Vec::new();
    record.encode(&mut again);
    assert_eq!(again, data, "two ways to write {record:?}");
}
