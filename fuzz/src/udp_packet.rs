//! Protected packets: header and frames.

use udp_proto::ChannelTable;
use udp_proto::frame::{Frame, Frames};
use udp_proto::packet::{Header, PLAINTEXT_LEN_MIN, PacketNumber, TAG_LEN};

/// Decodes a packet header after one byte for the length of connection ids, and expands its packet
/// number against the last 8 bytes.
pub fn header(data: &[u8]) {
    let Some((&cid_len, datagram)) = data.split_first() else {
        return;
    };
    let cid_len = usize::from(cid_len % 10);
    let Ok(header) = Header::decode(datagram, cid_len) else {
        return;
    };
    assert!(cid_len <= 8);
    let mut again = Vec::new();
    header.encode(&mut again);
    assert_eq!(again.len(), header.encoded_len());
    assert!(datagram.starts_with(&again), "two ways to write one header");
    assert!(datagram.len() >= again.len() + PLAINTEXT_LEN_MIN + TAG_LEN);

    let last: [u8; 8] = datagram.last_chunk().copied().unwrap_or_default();
    let expected = PacketNumber::new(u64::from_be_bytes(last) >> 2).expect("below 2^62");
    let number = expected.widen(header.number);
    assert_eq!(number.truncate(header.number.form()), header.number);
}

/// Decodes a plaintext as frames of the default channels. Accepted frames survive a round trip.
pub fn frames(data: &[u8]) {
    let table = ChannelTable::default();
    let mut count = 0;
    let mut frames = Frames::new(data, &table);
    while let Some(frame) = frames.next() {
        count += 1;
        let Ok(frame) = frame else {
            assert!(frames.next().is_none(), "something follows an error");
            break;
        };
        let mut again = Vec::new();
        frame.encode(&mut again);
        assert_eq!(again.len(), frame.encoded_len());
        // A message without a length field is encoded with one.
        let longer = usize::from(matches!(frame, Frame::Message(_))) * 2;
        assert!(again.len() <= data.len() + longer);
        let read: Vec<_> = Frames::new(&again, &table).collect();
        assert_eq!(read, [Ok(frame)], "what is written is not read");
    }
    assert!(count <= data.len(), "more frames than bytes");
}
