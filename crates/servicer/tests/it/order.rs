//! The order of steps within a turn, and how often turns run.

use std::ops::ControlFlow;
use std::time::Duration;

use servicer::{Clock, Config, Driver, End, UdpSocket};

use crate::harness::{
    Echo, EchoEvent, HarnessRequest, Service, TIMEOUT, bind, next, plain, reporter,
};

#[test]
fn datagrams_queued_in_the_socket_are_handled_before_idle_timers() {
    let socket = plain("127.0.0.1");
    let address = socket.local_addr().unwrap();
    plain("127.0.0.1").send_to(b"alive", address).unwrap();
    // Returns once the datagram is in the socket.
    socket.peek(&mut [0; 8]).unwrap();
    let machine = Echo::overdue();
    let (application, events) = reporter();
    let (mut driver, _requests) = Driver::new(
        vec![UdpSocket::from_std(socket).unwrap()],
        machine,
        application,
        Config::default(),
    )
    .unwrap();

    assert_eq!(driver.turn(), ControlFlow::Continue(()));

    assert!(matches!(next(&events), EchoEvent::Received { .. }));
    assert!(matches!(
        next(&events),
        EchoEvent::Fired { received: 1, .. }
    ));
}

#[test]
fn in_a_long_turn_handshakes_are_handled_last_and_before_timers() {
    let socket = plain("127.0.0.1");
    let address = socket.local_addr().unwrap();
    let peer = plain("127.0.0.1");
    for _ in 0..100 {
        peer.send_to(b"Begin", address).unwrap();
    }
    peer.send_to(b"go on", address).unwrap();
    socket.peek(&mut [0; 8]).unwrap();
    let (application, events) = reporter();
    let sockets = vec![UdpSocket::from_std(socket).unwrap()];
    let machine = Echo::overdue();
    let (mut driver, requests) =
        Driver::new(sockets, machine, application, Config::default()).unwrap();

    assert_eq!(driver.turn(), ControlFlow::Continue(()));

    let received: Vec<Vec<u8>> = (0..101)
        .map(|_| match next(&events) {
            EchoEvent::Received { bytes, .. } => bytes,
            other @ (EchoEvent::Fired { .. } | EchoEvent::WallClock(_)) => panic!("{other:?}"),
        })
        .collect();
    let place = received.iter().position(|bytes| bytes == b"go on");
    assert_eq!(place, Some(64));
    assert!(matches!(
        next(&events),
        EchoEvent::Fired { received: 101, .. }
    ));
    assert_eq!(requests.counters().datagrams_waited, 36);
}

#[test]
fn datagrams_behind_an_icmp_error_are_received() {
    let peer = plain("127.0.0.1");
    let socket = plain("127.0.0.1");
    socket.connect(peer.local_addr().unwrap()).unwrap();
    peer.send_to(b"alive", socket.local_addr().unwrap())
        .unwrap();
    socket.peek(&mut [0; 8]).unwrap();
    // The system reports the closed port before it returns the datagram.
    drop(peer);
    socket.send(b"anyone").unwrap();
    let (application, events) = reporter();
    let (mut driver, _requests) = Driver::new(
        vec![UdpSocket::from_std(socket).unwrap()],
        Echo::overdue(),
        application,
        Config::default(),
    )
    .unwrap();

    assert_eq!(driver.turn(), ControlFlow::Continue(()));

    assert!(matches!(next(&events), EchoEvent::Received { .. }));
    assert!(matches!(
        next(&events),
        EchoEvent::Fired { received: 1, .. }
    ));
}

#[test]
fn the_wall_clock_is_set_before_all_else() {
    let service = Service::start("127.0.0.1");
    let first = service.events.recv_timeout(TIMEOUT).unwrap();
    let EchoEvent::WallClock(unix) = first else {
        panic!("{first:?} came first")
    };
    assert!(unix <= Clock::new().unix_time());
}

#[test]
fn a_turn_reads_at_most_one_batch_and_the_next_turn_the_rest() {
    let socket = bind("127.0.0.1");
    let address = socket.local_address();
    let client = plain("127.0.0.1");
    for number in 0..600_u32 {
        client.send_to(&number.to_be_bytes(), address).unwrap();
    }
    let machine = Echo::silent();
    let (application, events) = reporter();
    let mut config = Config::default();
    config.datagrams_per_turn = 8.try_into().unwrap();
    let (mut driver, requests) = Driver::new(vec![socket], machine, application, config).unwrap();

    // The first turn counts as one after a pause: 16 batches, plus the last receive.
    assert_eq!(driver.turn(), ControlFlow::Continue(()));
    assert!(requests.counters().datagrams_in <= 8 * 16 + 32);

    // No further datagram arrives, so a driver that forgot the rest would wait forever.
    let thread = std::thread::spawn(move || driver.run());
    for number in 0..600_u32 {
        let EchoEvent::Received { bytes, .. } = next(&events) else {
            panic!("not a datagram")
        };
        assert_eq!(bytes, number.to_be_bytes());
    }
    requests.send(HarnessRequest::Stop).unwrap();
    thread.join().unwrap();
}

#[test]
fn timers_fire_and_never_early() {
    let service = Service::start("127.0.0.1");
    for micros in [0, 300, 1_500, 20_000] {
        service
            .handle
            .request(HarnessRequest::Timer(Duration::from_micros(micros)))
            .unwrap();
        assert!(matches!(service.next(), EchoEvent::Fired { .. }));
    }
    assert_eq!(service.handle.counters().timeouts, 4);
}

#[test]
fn an_earlier_deadline_replaces_a_later_one() {
    let service = Service::start("127.0.0.1");
    service
        .handle
        .request(HarnessRequest::Timer(TIMEOUT * 10))
        .unwrap();
    service.ping();
    service
        .handle
        .request(HarnessRequest::Timer(Duration::from_millis(1)))
        .unwrap();
    assert!(matches!(service.next(), EchoEvent::Fired { .. }));
}

#[test]
fn the_application_steps_at_its_own_rate() {
    let (sender, steps) = crossbeam_channel::unbounded();
    let start = Clock::new().now();
    let interval = Duration::from_millis(2);
    let _service = Service::start_with("127.0.0.1", Echo::default(), |application| {
        application.step = Some((start, interval));
        application.steps = Some(sender);
    });
    let mut due = start;
    for _ in 0..20 {
        assert_eq!(steps.recv_timeout(TIMEOUT), Ok(due));
        assert!(Clock::new().now() >= due, "not before it was due");
        due += interval;
    }
}

#[test]
fn an_idle_servicer_makes_no_turns() {
    let service = Service::start("127.0.0.1");
    service.ping();
    // Another servicer's 50 timers measure a period in which this one is idle.
    let clock = Service::start("127.0.0.1");
    let before = service.handle.counters().turns;
    for _ in 0..50 {
        clock
            .handle
            .request(HarnessRequest::Timer(Duration::from_millis(2)))
            .unwrap();
        clock.next();
    }
    let turns = service.handle.counters().turns - before;
    assert!(turns <= 2, "{turns} turns for nothing");
    // The busy one: one turn for the request, one for the timer, and at most as many for wakes that
    // find no work.
    assert!(clock.handle.counters().turns <= 50 * 4 + 4);
}

#[test]
fn a_timer_that_stays_due_does_not_become_a_busy_loop() {
    let began = Clock::new().now();
    let machine = Echo::overdue().stuck();
    let service = Service::start_with("127.0.0.1", machine, |_| {});
    for _ in 0..20 {
        assert!(matches!(service.next(), EchoEvent::Fired { .. }));
    }
    // 20 runs have 19 pauses of 1 ms; a busy loop needs microseconds.
    assert!(Clock::new().now().saturating_since(began) >= Duration::from_millis(19));
    assert!(service.handle.counters().stuck_timers >= 19);
}

#[test]
fn a_machine_that_sends_without_end_does_not_starve_receiving() {
    let sink = plain("127.0.0.1");
    let machine = Echo::flood(sink.local_addr().unwrap());
    let service = Service::start_with("127.0.0.1", machine, |_| {});
    service.ping();
    plain("127.0.0.1")
        .send_to(b"hello", service.address)
        .unwrap();
    assert!(matches!(service.next(), EchoEvent::Received { .. }));
    let report = service.handle.shutdown(Duration::from_millis(1));
    assert_eq!(report.end, End::DeadlinePassed);
}
