use super::super::mailbox::{Room, mailbox};
use super::*;

#[test]
fn ls_19_the_shortest_messages_of_a_read_take_no_more_than_they_count_for_and_leave_no_room_behind()
{
    let room = Room {
        events_max: 100,
        bytes_max: 1 << 20,
    };
    let (mailbox, inbox) = mailbox(room);
    let budget = Budget {
        bytes_max: 1 << 16,
        age_max: std::time::Duration::from_secs(5),
    };
    let mut desk = Desk::new(mailbox.clone(), budget, Arc::default());
    let (now, id) = (Instant::ZERO, ConnectionId(1));
    desk.expect(MemberId(1), Bytes::new());
    desk.handle_opened(now, id, &PeerIdentity::Anonymous);
    // As many records of one byte and a 4-byte length as fit into 64 KiB.
    let count = (64 << 10) / 5;
    for _ in 0..count {
        desk.handle_frame(now, id, &[3]);
    }
    assert!(!desk.may_receive());
    let held = desk.news.capacity() * size_of::<News>();
    assert!(held <= 1 << 20, "{held}");
    let mut taken = 0;
    while taken < count {
        while let Some(news) = desk.poll_event() {
            mailbox.put(news.bytes(), news);
        }
        while let Some(News::Message { payload, .. }) = inbox.take() {
            assert!(payload.is_empty());
            taken += 1;
        }
    }
    assert!(desk.may_receive() && desk.news.capacity() <= 2 * NEWS_KEPT);
}
