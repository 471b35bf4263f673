//! Datagrams at a mesh socket.

use relay_mesh::hop::{FRAME_MAX, HOPS_LEFT_MAX, HopHeader, NUMBERS_MAX};
use relay_mesh::trunk::{Frames, KIND, append};

/// Decodes a hop header. An accepted one has one encoding, with all fields in range.
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

/// Decodes a trunk. Its frames are as written, up to the first error; none is empty or itself a
/// trunk.
pub fn trunk(data: &[u8]) {
    let mut datagram = data.to_vec();
    let Ok(frames) = Frames::new(&mut datagram) else {
        return;
    };
    assert!(data.len() <= FRAME_MAX, "longer than a link carries");
    let (mut again, mut is_good) = (vec![KIND], true);
    for frame in frames {
        assert!(is_good, "something behind what is bad");
        if let Ok(frame) = frame {
            assert!(frame.first().is_some_and(|first| *first != KIND));
            append(frame, &mut again);
            hop_header(frame);
        } else {
            is_good = false;
        }
    }
    assert!(data.starts_with(&again), "other frames than were written");
    assert!(!is_good || again == data, "something is left over");
}
