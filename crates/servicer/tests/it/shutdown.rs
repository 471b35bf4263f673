//! How a servicer ends, and the results of pending requests.

use std::time::Duration;

use servicer::{Config, End, RequestError, UdpServicer};

use crate::harness::{
    Echo, EchoEvent, HarnessRequest, Service, TIMEOUT, bind, plain, receive, reporter,
};

#[test]
fn a_shutdown_notifies_peers_and_joins() {
    let client = plain("127.0.0.1");
    let peer = client.local_addr().unwrap();
    let service = Service::start_with("127.0.0.1", Echo::default(), |application| {
        application.farewell = vec![peer];
    });
    let report = service.handle.shutdown(TIMEOUT);
    assert_eq!(report.end, End::Drained);
    assert_eq!(report.counters.datagrams_out, 1);
    assert_eq!(receive(&client).0, b"farewell");
    assert!(
        report
            .to_string()
            .starts_with("echo: shut down in order after")
    );
    // The thread has ended: nothing holds the application's channel.
    while service.events.recv_timeout(TIMEOUT).is_ok() {}
    assert_eq!(
        service.events.try_recv(),
        Err(crossbeam_channel::TryRecvError::Disconnected)
    );
}

#[test]
fn a_shutdown_ends_at_its_deadline_where_the_application_is_not_done() {
    let service = Service::start_with("127.0.0.1", Echo::default(), |application| {
        application.is_drained = false;
    });
    let report = service.handle.shutdown(Duration::from_millis(20));
    assert_eq!(report.end, End::DeadlinePassed);
}

#[test]
fn dropping_the_handle_ends_the_thread() {
    let service = Service::start_with("127.0.0.1", Echo::default(), |application| {
        application.is_drained = false;
    });
    drop(service.handle);
    while service.events.try_recv().is_ok() {}
    assert_eq!(
        service.events.try_recv(),
        Err(crossbeam_channel::TryRecvError::Disconnected)
    );
}

#[test]
fn the_application_can_end_it() {
    let service = Service::start("127.0.0.1");
    service.handle.request(HarnessRequest::Stop).unwrap();
    while service.events.recv_timeout(TIMEOUT).is_ok() {}
    let refused = service.handle.request(HarnessRequest::Stop);
    assert!(matches!(
        refused,
        Err(RequestError::Ended(HarnessRequest::Stop))
    ));
    let report = service.handle.shutdown(TIMEOUT);
    assert_eq!(report.end, End::Stopped);
}

#[test]
fn a_panic_of_the_machine_is_reported_and_contained() {
    let service = Service::start("127.0.0.1");
    plain("127.0.0.1")
        .send_to(b"panic", service.address)
        .unwrap();
    while service.events.recv_timeout(TIMEOUT).is_ok() {}
    let report = service.handle.shutdown(TIMEOUT);
    let End::Panicked(message) = report.end else {
        panic!("{}", report.end)
    };
    assert!(message.contains("the machine was told to"), "{message}");
    assert_eq!(report.counters.datagrams_in, 1, "what was counted survives");
}

#[test]
fn a_panic_of_the_application_is_reported_and_contained() {
    let service = Service::start("127.0.0.1");
    service.handle.request(HarnessRequest::Panic).unwrap();
    let report = service.handle.shutdown(TIMEOUT);
    assert_eq!(
        report.end,
        End::Panicked("the application was told to".to_owned())
    );
}

#[test]
fn a_blocked_thread_is_abandoned_and_reported() {
    let service = Service::start("127.0.0.1");
    let (release, until) = crossbeam_channel::bounded(0);
    service
        .handle
        .request(HarnessRequest::Block(until))
        .unwrap();
    let report = service.handle.shutdown(Duration::ZERO);
    assert_eq!(report.end, End::Stuck);
    drop(release);
    while service.events.recv_timeout(TIMEOUT).is_ok() {}
}

#[test]
fn a_full_queue_hands_the_request_back() {
    let (application, _news) = reporter();
    let mut config = Config::default();
    config.requests_max = 3.try_into().unwrap();
    let handle = UdpServicer::named("small")
        .with_config(config)
        .spawn(vec![bind("127.0.0.1")], Echo::default(), application)
        .unwrap();
    // While blocked in one request, the servicer takes no other.
    let (release, until) = crossbeam_channel::bounded(0);
    let (answer, answered) = crossbeam_channel::bounded(1);
    handle.request(HarnessRequest::Ping(answer)).unwrap();
    answered.recv_timeout(TIMEOUT).unwrap();
    handle.request(HarnessRequest::Block(until)).unwrap();
    let mut taken = 0;
    let refused = loop {
        match handle.request(HarnessRequest::Timer(Duration::ZERO)) {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
    };
    // The blocking request may still be in the queue, depending on the scheduler.
    assert!((2..=3).contains(&taken), "{taken}");
    assert!(matches!(
        refused,
        RequestError::Full(HarnessRequest::Timer(_))
    ));
    assert!(matches!(refused.into_request(), HarnessRequest::Timer(_)));
    assert_eq!(handle.counters().requests_refused, 1);
    drop(release);
    let (answer, answered) = crossbeam_channel::bounded(1);
    let mut ping = HarnessRequest::Ping(answer);
    while let Err(error) = handle.request(ping) {
        ping = error.into_request();
        std::thread::yield_now();
    }
    answered.recv_timeout(TIMEOUT).unwrap();
}

#[test]
fn requests_from_many_threads_are_all_applied() {
    let service = Service::start("127.0.0.1");
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let requests = service.handle.requests();
            std::thread::spawn(move || {
                for _ in 0..500 {
                    let (answer, answered) = crossbeam_channel::bounded(1);
                    requests.send(HarnessRequest::Ping(answer)).unwrap();
                    // If the wake is lost, this times out.
                    answered.recv_timeout(TIMEOUT).unwrap();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(service.handle.counters().requests, 2_000);
    assert!(
        !service
            .events
            .try_iter()
            .any(|event| matches!(event, EchoEvent::Received { .. }))
    );
}
