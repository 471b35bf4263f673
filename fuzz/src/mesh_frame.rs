//! What any datagram at a mesh socket may claim to be.

use relay_mesh::hop::{FRAME_MAX, HOPS_LEFT_MAX, HopHeader, NUMBERS_MAX};
use relay_mesh::trunk::{Frames, KIND, append};

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

/// The frames of a trunk are those that were written, up to where it is bad; none is empty or a trunk.
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
