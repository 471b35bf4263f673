//! Pending requests for a report.

use core::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use udp_proto::SendError;

use crate::Report;

/// Most pending requests; each gets a copy of the report.
const WAITING_MAX: usize = 1_024;

/// The callback that receives a report.
pub(crate) struct Answer(Box<dyn FnOnce(Report) + Send>);

impl Answer {
    pub(crate) fn new(give: impl FnOnce(Report) + Send + 'static) -> Self {
        Self(Box::new(give))
    }

    pub(crate) fn give(self, report: Report) {
        (self.0)(report);
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answer(..)")
    }
}

/// The pending requests.
///
/// They are not in the driver's request queue: a queue is dropped only with its last sender, so
/// requests left in it when the thread ends would wait for as long as a sender exists.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    waiting: Vec<Answer>,
    /// Whether the thread has ended.
    is_over: bool,
}

impl Answers {
    /// Adds a request.
    ///
    /// # Errors
    ///
    /// [`SendError::Closed`] if the thread has ended, [`SendError::Full`] if 1,024 requests wait.
    pub(crate) fn ask(&self, answer: Answer) -> Result<(), SendError> {
        let mut book = self.book();
        if book.is_over {
            return Err(SendError::Closed);
        }
        if book.waiting.len() >= WAITING_MAX {
            return Err(SendError::Full);
        }
        book.waiting.push(answer);
        Ok(())
    }

    /// Takes all pending requests.
    pub(crate) fn take(&self) -> Vec<Answer> {
        core::mem::take(&mut self.book().waiting)
    }

    /// Drops all pending requests and refuses new ones.
    pub(crate) fn end(&self) {
        let mut book = self.book();
        book.is_over = true;
        let waiting = core::mem::take(&mut book.waiting);
        drop(book);
        // Outside the lock: dropping a callback may trigger a new request.
        drop(waiting);
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // No panic can happen under the lock, and each change leaves the state consistent.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn u18_1_024_may_wait_for_a_report() {
        let answers = Answers::default();
        let ask = || answers.ask(Answer::new(drop));
        for _ in 0..WAITING_MAX {
            assert_eq!(ask(), Ok(()));
        }
        assert_eq!(ask(), Err(SendError::Full));
        assert_eq!(answers.take().len(), WAITING_MAX);
        assert_eq!(ask(), Ok(()));
        answers.end();
        assert!(answers.take().is_empty());
        assert_eq!(ask(), Err(SendError::Closed));
    }
}
