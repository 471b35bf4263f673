//! What any datagram at a mesh socket may claim to be.

use relay_mesh::hop::{FRAME_MAX, HOPS_LEFT_MAX, HopHeader, NUMBERS_MAX};

/// A header that is read is written the same, and its fields keep their bounds.
pub fn hop_header(data: &[u8]) {
    let Ok(header) = HopHeader::decode(data) else {
        return;
    };
    assert!(data.len() <= FRAME_MAX, "longer than a link carries");
    assert!(data.first().is_some_and(|first| HopHeader::claims(*first)));
    assert!(header.hops_left <= HOPS_LEFT_MAX && header.number < NUMBERS_MAX);
    assert!(
        data.starts_with(&header.encode()),
        "two ways to write {header:?}"
    );
}
