//! The combinations of several lists, as jobs.

use std::ffi::OsString;
use std::sync::Arc;

use super::Source;
use super::delimited::Delimited;
use super::error::{InputError, Position};
use super::input::InputName;
use super::jobs::{Jobs, ReadJobs};
use crate::job::{Job, Record, Template};

/// A list of values.
#[derive(Debug)]
pub enum List {
    /// The words after `:::`.
    Values(Vec<OsString>),
    /// The lines of an input, such as the file after `::::`.
    Lines(Source),
}

/// Makes a job of each combination of values, with a column for each list. The last list varies fastest, as in GNU
/// parallel. If a list is empty, there are no combinations; GNU parallel takes an empty second list for one empty value.
///
/// The first list is read as needed. The others, which are read again and again, are read for the first job, and kept in memory; if
/// one cannot be read, that is the error in the place of the first job.
///
/// ```
/// use pipewright_batch::{List, Template, product};
/// let template = Template::parse(["convert", "{1}", "-quality", "{2}", "{1.}-{2}.jpg"])?;
/// let lists = [["a.png", "b.png"], ["50", "90"]].map(|list| List::Values(list.map(Into::into).into()));
/// let last = product(template, lists).last().unwrap()?;
/// assert_eq!(last.argv(1)?, ["convert", "b.png", "-quality", "90", "b-90.jpg"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn product(template: impl Into<Arc<Template>>, lists: impl IntoIterator<Item = List>) -> Jobs {
    let template = template.into();
    let mut lists = lists.into_iter();
    let first = match lists.next() {
        Some(List::Lines(source)) => First::Lines(source.into()),
        Some(List::Values(values)) => First::Values(bytes_of(values).into_iter()),
        None => First::Values(Vec::new().into_iter()),
    };
    let (unread, others, digits) = (lists.collect(), Vec::new(), Vec::new());
    Jobs::new(Product { template, first, value: None, unread, others, digits, number: 0 })
}

/// The combinations of several lists.
struct Product {
    template: Arc<Template>,
    first: First,
    /// The current value of the first list.
    value: Option<Vec<u8>>,
    /// The other lists, until the first job is asked for.
    unread: Vec<List>,
    others: Vec<Vec<Vec<u8>>>,
    /// The index of the next value in each of the other lists.
    digits: Vec<usize>,
    number: u64,
}

/// The first list, which is read once.
enum First {
    Values(std::vec::IntoIter<Vec<u8>>),
    Lines(Delimited),
}

impl List {
    fn read(self) -> Result<Vec<Vec<u8>>, InputError> {
        let mut lines: Delimited = match self {
            List::Values(values) => return Ok(bytes_of(values)),
            List::Lines(source) => source.into(),
        };
        let mut values = Vec::new();
        while let Some(line) = lines.next_record()? {
            values.push(line.to_vec());
        }
        Ok(values)
    }
}

fn bytes_of(values: Vec<OsString>) -> Vec<Vec<u8>> {
    values.into_iter().map(OsString::into_encoded_bytes).collect()
}

impl First {
    fn next(&mut self) -> Result<Option<Vec<u8>>, InputError> {
        match self {
            First::Values(values) => Ok(values.next()),
            First::Lines(lines) => Ok(lines.next_record()?.map(<[u8]>::to_vec)),
        }
    }

    /// Returns an error of the current value.
    fn error(&self, kind: crate::job::TemplateError) -> InputError {
        match self {
            First::Values(_) => {
                InputError::new(&InputName::Arguments, Position::Unknown, kind.into())
            }
            First::Lines(lines) => lines.error(kind),
        }
    }
}

impl Product {
    /// Returns the next combination.
    fn next_record(&mut self) -> Result<Option<Record>, InputError> {
        for list in std::mem::take(&mut self.unread) {
            self.others.push(list.read()?);
            self.digits.push(0);
        }
        if self.others.iter().any(Vec::is_empty) {
            return Ok(None);
        }
        if self.value.is_none() {
            self.value = self.first.next()?;
        }
        let Some(first) = &self.value else { return Ok(None) };
        let mut record = Record::new(first.as_slice());
        for (list, digit) in self.others.iter().zip(&self.digits) {
            record.begin_column();
            record.extend(list.get(*digit).map_or(&[], Vec::as_slice));
        }
        self.advance();
        Ok(Some(record))
    }

    /// Goes to the next combination, as a counter goes to the next number.
    fn advance(&mut self) {
        for (list, digit) in self.others.iter().zip(&mut self.digits).rev() {
            *digit += 1;
            if *digit < list.len() {
                return;
            }
            *digit = 0;
        }
        self.value = None;
    }
}

impl ReadJobs for Product {
    fn next_job(&mut self) -> Result<Option<Job>, InputError> {
        let Some(record) = self.next_record()? else { return Ok(None) };
        self.number += 1;
        match self.template.job(self.number, record) {
            Ok(job) => Ok(Some(job)),
            Err(error) => Err(self.first.error(error)),
        }
    }
}
