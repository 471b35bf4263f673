//! Pages of a mailbox: what is left out of a page does not end it.

use super::*;

/// Reads a mailbox in the longest pages.
fn read_page(
    store: &mut Store<MemorySegments>,
    after: MailSeq,
    now: UnixTime,
) -> (Vec<Mail>, bool) {
    let op = StoreOp::Read {
        player: ClientId(9),
        after,
        bytes_max: 1 << 20,
        now,
    };
    match run(store, op).unwrap() {
        Completed::Mails { mails, more } => (mails, more),
        other => panic!("{other:?}"),
    }
}

#[test]
fn expired_mail_does_not_end_a_page_early() {
    let mut store = open(MemorySegments::new(1 << 30));
    let epoch = join(&mut store, 1);
    let early = NOW + Duration::from_secs(2);
    for seq in 1..=300 {
        let mut mail = mail(epoch, seq, 9, b"short");
        if seq <= 5 {
            mail.expires = early;
        }
        append(&mut store, mail).unwrap();
    }
    let now = early + Duration::from_secs(10);
    let (first, more) = read_page(&mut store, MailSeq(0), now);
    assert!(more, "{} mails", first.len());
    let (second, more) = read_page(&mut store, first.last().unwrap().seq, now);
    assert_eq!((first.len() + second.len(), more), (295, false));
}

#[test]
fn lost_mail_does_not_end_a_page_early() {
    let mut store = open(MemorySegments::new(1 << 30));
    let epoch = join(&mut store, 1);
    for seq in 1..=300 {
        append(&mut store, mail(epoch, seq, 9, b"short")).unwrap();
    }
    let entry = store.log.index.mails_after(ClientId(9), MailSeq(10)).next();
    let place = entry.unwrap().1.place;
    store.files_mut().flip_bit(
        place.segment,
        usize::try_from(place.offset).unwrap() + 20,
        3,
    );
    let (first, more) = read_page(&mut store, MailSeq(0), NOW);
    assert!(more, "{} mails", first.len());
    let (second, more) = read_page(&mut store, first.last().unwrap().seq, NOW);
    assert_eq!((first.len() + second.len(), more), (299, false));
}
