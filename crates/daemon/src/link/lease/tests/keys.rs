use super::*;

/// Lets `span` pass with an obedient matchmaker; returns what was told.
fn live(lease: &mut Lease, now: &mut Instant, span: Duration) -> Vec<LeaseNews> {
    let end = *now + span;
    let mut news = Vec::new();
    loop {
        lease.handle_timeout(*now);
        while lease.poll_call(*now).is_some() {
            answer(lease, *now, &renewed(30, 10));
        }
        news.extend(core::iter::from_fn(|| lease.poll_news()));
        let next = lease.poll_timeout().unwrap();
        assert!(next > *now, "a busy loop");
        if next > end {
            *now = end;
            return news;
        }
        *now = next;
    }
}

#[test]
fn mm_7_a_key_is_changed_each_day_and_the_one_before_lapses_with_its_last_token() {
    let mut lease = Rig::registered();
    let mut now = START;
    assert_eq!(live(&mut lease, &mut now, secs(24 * 3_600 - 2)), []);
    assert_eq!(
        live(&mut lease, &mut now, secs(2)),
        [LeaseNews::RotateKey(1)]
    );
    // The game does not take it: nothing changes, and it is asked again a day later.
    assert_eq!(live(&mut lease, &mut now, secs(24 * 3_600 - 1)), []);
    assert_eq!(
        live(&mut lease, &mut now, secs(1)),
        [LeaseNews::RotateKey(1)]
    );
    let key = TokenKey::generate(&mut Ring::new(), 2).unwrap();
    lease.set_token_key(key);
    // A token may be sealed under the old one for as long as the matchmaker has not heard.
    lease.handle_hub_down();
    now += secs(20);
    lease.handle_timeout(now);
    lease.handle_joined();
    assert_eq!(
        live(&mut lease, &mut now, secs(304)),
        [LeaseNews::Registered]
    );
    assert_eq!(
        live(&mut lease, &mut now, secs(1)),
        [LeaseNews::KeyLapsed(1)]
    );
    assert_eq!(live(&mut lease, &mut now, secs(3_600)), []);
}

#[test]
fn keys_in_use_are_few_however_often_they_change() {
    let mut lease = Rig::registered();
    lease.keys = Keys::new(lease.keys.current().clone(), Duration::ZERO, START);
    let mut now = START;
    for id in 1..4 {
        let news = live(&mut lease, &mut now, Duration::from_millis(1));
        assert_eq!(news, [LeaseNews::RotateKey(id)]);
        let key = TokenKey::generate(&mut Ring::new(), id + 1).unwrap();
        lease.set_token_key(key);
        assert_eq!(
            live(&mut lease, &mut now, secs(304)),
            [LeaseNews::Registered]
        );
        // What is due next comes after the one before has lapsed.
        lease.handle_timeout(now + secs(1));
        now += secs(1);
        assert_eq!(lease.poll_news(), Some(LeaseNews::KeyLapsed(id)));
        assert_eq!(lease.poll_news(), Some(LeaseNews::RotateKey(id + 1)));
        let again = Keys::new(lease.keys.current().clone(), Duration::ZERO, now);
        lease.keys = again;
    }
    // By hand, out of turn: the oldest of more than an endpoint holds is given up.
    for id in 5..9 {
        lease.set_token_key(TokenKey::generate(&mut Ring::new(), id).unwrap());
    }
    assert_eq!(lease.poll_news(), Some(LeaseNews::KeyLapsed(4)));
    assert_eq!(lease.poll_news(), None);
}
