//! Who waits for a report of the thread.

use core::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use udp_proto::SendError;

use crate::Report;

/// How many may wait at a time; each gets a copy.
const WAITING_MAX: usize = 1_024;

/// Whom a report is for.
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

/// Those who wait.
///
/// They are kept beside the queue of orders: what is in that when the thread ends stays there for as long
/// as somebody could add to it, and who waits by it would wait as long.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    waiting: Vec<Answer>,
    /// Nobody will give one any more.
    is_over: bool,
}

impl Answers {
    /// Has one wait.
    ///
    /// # Errors
    ///
    /// [`SendError::Closed`] where the thread has ended, [`SendError::Full`] where 1,024 wait.
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

    /// Takes all who wait.
    pub(crate) fn take(&self) -> Vec<Answer> {
        core::mem::take(&mut self.book().waiting)
    }

    /// Lets nobody wait any more, now or later: their answers are dropped.
    pub(crate) fn end(&self) {
        let mut book = self.book();
        book.is_over = true;
        let waiting = core::mem::take(&mut book.waiting);
        drop(book);
        // Not under the lock: whoever hears of it may ask again at once.
        drop(waiting);
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // Nothing in between panics; and each change leaves it whole.
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
