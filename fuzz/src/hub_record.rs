//! Records that both ends of a hub link decode.

use hub::record::{ToHub, ToNode};

/// Decodes a record as a hub does. An accepted record has one encoding.
pub fn to_hub(data: &[u8]) {
    let Ok(record) = ToHub::decode(data) else {
        return;
    };
    let mut again = Vec::new();
    record.encode(&mut again);
    assert_eq!(again, data, "two ways to write {record:?}");
}

/// Decodes a record as a node does. An accepted record has one encoding.
pub fn to_node(data: &[u8]) {
    let Ok(record) = ToNode::decode(data) else {
        return;
    };
    let mut again = Vec::new();
    record.encode(&mut again);
    assert_eq!(again, data, "two ways to write {record:?}");
}
