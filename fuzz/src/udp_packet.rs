//! Protected packets: header, and the frames behind the AEAD.

use udp_proto::ChannelTable;
use udp_proto::frame::{Frame, Frames};
use udp_proto::packet::{Header, PLAINTEXT_LEN_MIN, PacketNumber, TAG_LEN};

/// Reads the header of a packet behind a first byte that says how long connection ids are, and
/// widens its number against whatever the last 8 bytes say.
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

/// Reads a plaintext as frames of the default channels; what is read is written, and read again.
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
        // A message without a length is written with one.
        let longer = usize::from(matches!(frame, Frame::Message(_))) * 2;
        assert!(again.len() <= data.len() + longer);
        let read: Vec<_> = Frames::new(&again, &table).collect();
        assert_eq!(read, [Ok(frame)], "what is written is not read");
    }
    assert!(count <= data.len(), "more frames than bytes");
}
