//! Host names of a node's configuration file, resolved periodically.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::Duration;

use relay_mesh::AddressUse;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostName {
    /// `name:port`, as in the file.
    pub(super) text: String,
    pub(super) of: AddressUse,
    pub(super) address: SocketAddr,
    /// Consecutive answers without the address in use.
    pub(super) misses: u8,
}

/// Resolves the names periodically on its own thread, since resolving blocks.
///
/// Dropping it stops the thread after the current name, without waiting for it.
#[derive(Debug)]
pub(super) struct HostNames {
    /// Closed to stop the thread.
    _stop: SyncSender<Infallible>,
}

impl HostNames {
    /// Pause between two passes over all names.
    pub(super) const INTERVAL: Duration = Duration::from_secs(10);

    /// Starts the thread. After three consecutive answers without the address in use it calls
    /// `replace` with the name and the new address; `replace` returns whether the new one is now in
    /// use.
    ///
    /// # Errors
    ///
    /// If no thread can be started.
    pub(super) fn start(
        mut names: Vec<HostName>,
        interval: Duration,
        mut resolve: impl FnMut(&str) -> io::Result<Vec<SocketAddr>> + Send + 'static,
        mut replace: impl FnMut(&HostName, SocketAddr) -> bool + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopped) = mpsc::sync_channel(0);
        let watch = move || {
            while !is_stopped(&stopped, interval) {
                for name in &mut names {
                    refresh(name, &mut resolve, &mut replace);
                }
            }
        };
        thread::Builder::new()
            .name("host names".to_owned())
            .spawn(watch)?;
        Ok(Self { _stop: stop })
    }
}

pub(super) fn resolve(text: &str) -> io::Result<Vec<SocketAddr>> {
    text.to_socket_addrs().map(Iterator::collect)
}

fn is_stopped(stopped: &Receiver<Infallible>, interval: Duration) -> bool {
    stopped.recv_timeout(interval) == Err(RecvTimeoutError::Disconnected)
}

/// Resolves one name. The address in use stays until [`MISSES_MAX`] consecutive answers lack it,
/// because a name server may return a different subset each time. An address of the same family is
/// preferred.
fn refresh(
    name: &mut HostName,
    resolve: &mut impl FnMut(&str) -> io::Result<Vec<SocketAddr>>,
    replace: &mut impl FnMut(&HostName, SocketAddr) -> bool,
) {
    let found = resolve(&name.text).unwrap_or_default();
    if found.contains(&name.address) {
        name.misses = 0;
        return;
    }
    let same_family = |new: &&SocketAddr| new.is_ipv4() == name.address.is_ipv4();
    let Some(&new) = found.iter().find(same_family).or_else(|| found.first()) else {
        return;
    };
    name.misses = name.misses.saturating_add(1);
    if name.misses >= MISSES_MAX && replace(name, new) {
        (name.address, name.misses) = (new, 0);
    }
}

/// Consecutive answers without the address in use before it is replaced.
const MISSES_MAX: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, host], 4_500))
    }

    fn name() -> HostName {
        HostName {
            text: "exit.example.org:4500".to_owned(),
            of: AddressUse::Own,
            address: at(1),
            misses: 0,
        }
    }

    #[test]
    fn an_address_stays_until_its_name_resolves_to_another() {
        let mut name = name();
        let mut replaced = Vec::new();
        let failed = || Err(io::Error::from(io::ErrorKind::TimedOut));
        let elsewhere = || Ok(vec!["[2001:db8::1]:4500".parse().unwrap(), at(3), at(2)]);
        for (answer, is_taken) in [
            (Ok(vec![at(1)]), true),
            (failed(), true),
            (Ok(Vec::new()), true),
            // Resolvers rotate the order, and some return a subset.
            (Ok(vec![at(2), at(1)]), true),
            (Ok(vec![at(2)]), true),
            (Ok(vec![at(3)]), true),
            (Ok(vec![at(1)]), true),
            (elsewhere(), true),
            (elsewhere(), true),
            (failed(), true),
            (elsewhere(), false),
            (elsewhere(), true),
            (Ok(vec![at(2), at(3)]), true),
        ] {
            let mut answer = Some(answer);
            let mut resolve = |text: &str| {
                assert_eq!(text, "exit.example.org:4500");
                answer.take().unwrap()
            };
            refresh(&mut name, &mut resolve, &mut |name, new| {
                replaced.push((name.address, new));
                is_taken
            });
        }
        // The node did not answer the first call.
        assert_eq!(replaced, [(at(1), at(3)), (at(1), at(3))]);
        assert_eq!(name.address, at(3));
    }

    #[test]
    fn the_thread_resolves_periodically_and_ends_with_its_owner() {
        let (sender, changes) = mpsc::channel();
        let mut answers = [1, 2, 2, 2, 2, 3, 3, 3].map(at).into_iter();
        let watcher = HostNames::start(
            vec![name()],
            Duration::from_millis(1),
            move |_| {
                answers
                    .next()
                    .map(|at| vec![at])
                    .ok_or_else(|| io::ErrorKind::NotFound.into())
            },
            move |name, new| sender.send((name.address, new)).is_ok(),
        );
        let timeout = Duration::from_secs(20);
        let next = || changes.recv_timeout(timeout);
        assert_eq!(next(), Ok((at(1), at(2))));
        assert_eq!(next(), Ok((at(2), at(3))));
        drop(watcher);
        assert_eq!(next(), Err(RecvTimeoutError::Disconnected));
    }
}
