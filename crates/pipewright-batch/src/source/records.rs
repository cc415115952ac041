//! Records of an input, before a template makes jobs of them: of lines, of lists that are combined or linked, split
//! into columns, and several of them in one job.

use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;

use super::error::{InputError, Position};
use super::lines::Delimited;
use super::{InputName, Jobs, ReadJobs, Source};
use crate::job::{Job, Record, Template, TemplateError};

/// The records of an input, read when they are asked for. A [`Template`] makes jobs of them.
///
/// ```
/// use pipewright_batch::{Packing, Source, Template};
/// let lines = Source::new(&b"a.log\nb.log\nc.log\n"[..]).records();
/// let template = Template::parse(["tar", "cf", "{#}.tar", "{}"])?;
/// let jobs = lines.pack(template, Packing::default().most_values(2));
/// let words: Vec<_> = jobs.map(|job| job.unwrap().argv(1).unwrap().join(" ".as_ref())).collect();
/// assert_eq!(words, ["tar cf 1.tar a.log b.log", "tar cf 2.tar c.log"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "nothing is read before a job is asked for"]
pub struct Records(Box<dyn ReadRecords + Send>);

/// A reader of records.
pub(super) trait ReadRecords {
    /// Reads the next record.
    fn read_record(&mut self) -> Result<Option<Record>, InputError>;

    /// Returns the line that the last record begins on, or 0 if it is on none.
    fn line(&self) -> u64 {
        0
    }

    /// Returns an error of the last record.
    fn error(&self, kind: TemplateError) -> InputError {
        InputError::new(&InputName::Arguments, Position::Unknown, kind.into())
    }
}

/// The number of values that one job takes: as many as fit into the arguments of a process, as with `xargs`.
///
/// Values are packed in their order, and each job gets as many as it can; they are not spread over the slots. A value
/// that does not fit at all is a job of its own, which the system refuses. Each value counts with at least its own
/// bytes and one more, whatever the words have of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Packing {
    /// The most records of one job.
    pub most_values: u64,
    /// The most bytes of its words, each with the byte that ends it, and of its values.
    pub most_bytes: usize,
}

impl Packing {
    /// The most bytes that the words of a job have by default: those of GNU xargs.
    pub const USUAL_BYTES: usize = 128 << 10;

    /// Sets the most values of a job. 0 counts as 1.
    pub fn most_values(mut self, count: u64) -> Packing {
        self.most_values = count.max(1);
        self
    }

    /// Sets the most bytes of the words of a job, if this system allows so many.
    pub fn most_bytes(mut self, bytes: usize) -> Packing {
        self.most_bytes = bytes.min(pipewright_os::base::this_process::argument_bytes());
        self
    }
}

impl Default for Packing {
    /// Returns the packing of `xargs`: as many values as fit into 128 KiB, or less if this system allows less.
    fn default() -> Packing {
        Packing { most_values: u64::MAX, most_bytes: 0 }.most_bytes(Packing::USUAL_BYTES)
    }
}

impl Records {
    pub(super) fn new(records: impl ReadRecords + Send + 'static) -> Records {
        Records(Box::new(records))
    }

    /// Returns the combinations of the lists, with the columns of each. The last list varies fastest, as in GNU
    /// parallel. If a list is empty, there are no combinations; GNU parallel takes an empty second list for one empty
    /// value.
    ///
    /// The first list is read as needed. The others, which are read again and again, are read for the first record, and
    /// kept in memory; if one cannot be read, that is the error in the place of the first record.
    pub fn combined(lists: impl IntoIterator<Item = List>) -> Records {
        let mut lists = lists.into_iter();
        let first = lists.next().unwrap_or(List::Values(Vec::new())).into_records().0;
        let (unread, others, digits) = (lists.collect(), Vec::new(), Vec::new());
        Records::new(Combined { first, record: None, unread, others, digits })
    }

    /// Returns the first values of all lists, then the second ones, and so on. A list that is shorter begins again, as
    /// with `--link` of GNU parallel. If a list is empty, there are no records.
    ///
    /// The values that were read are kept in memory.
    pub fn linked(lists: impl IntoIterator<Item = List>) -> Records {
        let lists = lists.into_iter().map(|list| Repeated::new(list.into_records().0));
        Records::new(Linked(lists.collect()))
    }

    /// Splits each value into columns.
    pub fn columns(self, split: impl FnMut(&[u8]) -> Record + Send + 'static) -> Records {
        Records::new(Columns { records: self.0, split })
    }

    /// Makes a job of each record.
    pub fn fill(self, template: impl Into<Arc<Template>>) -> Jobs {
        self.pack(template, Packing { most_values: 1, most_bytes: 0 })
    }

    /// Makes a job of several records: their columns are those of one record. A column that the last job lacks is
    /// empty. Records before an error are a job, unless it lacks a column.
    pub fn pack(self, template: impl Into<Arc<Template>>, packing: Packing) -> Jobs {
        let (records, template) = (self.0, template.into());
        Jobs::new(Packed { records, template, packing, number: 0, next: None })
    }
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records").finish_non_exhaustive()
    }
}

/// The jobs of several records each.
struct Packed {
    records: Box<dyn ReadRecords + Send>,
    template: Arc<Template>,
    packing: Packing,
    number: u64,
    /// The first record of the next job and its line, or the error in its place.
    next: Option<Result<(Record, u64), InputError>>,
}

impl Packed {
    fn read(&mut self) -> Option<Result<(Record, u64), InputError>> {
        let read = self.records.read_record();
        read.map(|record| Some((record?, self.records.line()))).transpose()
    }

    /// Returns the bytes that a record adds to a job. Each value counts, also one of which no word has anything: a job
    /// with all of the input would be held in memory.
    fn bytes_of(&self, before: Option<&Record>, record: &Record) -> usize {
        let held = record.columns().map(|value| value.len() + 1).sum();
        self.template.value_bytes(before, record).max(held)
    }
}

impl ReadJobs for Packed {
    fn next_job(&mut self) -> Result<Option<Job>, InputError> {
        let Some(first) = self.next.take().or_else(|| self.read()) else { return Ok(None) };
        let (mut record, line) = first?;
        self.number += 1;
        let mut count = 1;
        if self.packing.most_values > 1 {
            let mut bytes = self.template.fixed_bytes() + self.bytes_of(None, &record);
            while count < self.packing.most_values {
                self.next = self.read();
                let Some(Ok((next, _))) = &self.next else { break };
                bytes += self.bytes_of(Some(&record), next);
                if bytes > self.packing.most_bytes {
                    break;
                }
                record.append(next);
                self.next = None;
                count += 1;
            }
        }
        let is_cut = matches!(self.next, Some(Err(_)));
        let is_whole = is_cut || count == self.packing.most_values;
        match self.template.job_of(self.number, record, is_whole) {
            Ok(job) => Ok(Some(job.on_line(line))),
            // Nobody meant a job that lacks a column because of the error after it.
            Err(error) => Err(match self.next.take() {
                Some(Err(cause)) => cause,
                _ => self.records.error(error),
            }),
        }
    }
}

/// Records whose values are split into columns.
struct Columns<F> {
    records: Box<dyn ReadRecords + Send>,
    split: F,
}

impl<F: FnMut(&[u8]) -> Record> ReadRecords for Columns<F> {
    fn read_record(&mut self) -> Result<Option<Record>, InputError> {
        let Some(record) = self.records.read_record()? else { return Ok(None) };
        let mut columns = record.columns().map(&mut self.split);
        let mut all = columns.next().unwrap_or_default();
        columns.for_each(|more| all.append(&more));
        Ok(Some(all))
    }

    fn line(&self) -> u64 {
        self.records.line()
    }

    fn error(&self, kind: TemplateError) -> InputError {
        self.records.error(kind)
    }
}

impl ReadRecords for Delimited {
    fn read_record(&mut self) -> Result<Option<Record>, InputError> {
        Ok(self.next_record()?.map(Record::new))
    }

    fn line(&self) -> u64 {
        self.line()
    }

    fn error(&self, kind: TemplateError) -> InputError {
        self.error(kind)
    }
}

impl ReadRecords for std::vec::IntoIter<OsString> {
    fn read_record(&mut self) -> Result<Option<Record>, InputError> {
        Ok(self.next().map(|value| Record::new(value.into_encoded_bytes())))
    }
}

// Several lists: combinations, and one value of each.

/// A list of values.
#[derive(Debug)]
pub enum List {
    /// The words after `:::`.
    Values(Vec<OsString>),
    /// The lines of an input, such as the file after `::::`.
    Lines(Source),
    /// Lists side by side, as those before and after `:::+`: a column for each, up to the end of the shortest.
    SideBySide(Vec<List>),
}

impl List {
    fn into_records(self) -> Records {
        match self {
            List::Values(values) => Records::new(values.into_iter()),
            List::Lines(source) => source.records(),
            List::SideBySide(lists) => {
                let lists = lists.into_iter().map(|list| list.into_records().0);
                Records::new(SideBySide(lists.collect()))
            }
        }
    }
}

/// Makes a job of each combination of values: [`Records::combined`].
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
    Records::combined(lists).fill(template)
}

/// The combinations of several lists.
struct Combined {
    first: Box<dyn ReadRecords + Send>,
    /// The current record of the first list.
    record: Option<Record>,
    /// The other lists, until the first record is asked for.
    unread: Vec<List>,
    others: Vec<Vec<Record>>,
    /// The index of the next record in each of the other lists.
    digits: Vec<usize>,
}

impl ReadRecords for Combined {
    fn read_record(&mut self) -> Result<Option<Record>, InputError> {
        for list in std::mem::take(&mut self.unread) {
            let mut records = list.into_records().0;
            let mut all = Vec::new();
            while let Some(record) = records.read_record()? {
                all.push(record);
            }
            self.others.push(all);
            self.digits.push(0);
        }
        if self.others.iter().any(Vec::is_empty) {
            return Ok(None);
        }
        if self.record.is_none() {
            self.record = self.first.read_record()?;
        }
        let Some(mut record) = self.record.clone() else { return Ok(None) };
        for (list, digit) in self.others.iter().zip(&self.digits) {
            list.get(*digit).into_iter().for_each(|more| record.append(more));
        }
        self.advance();
        Ok(Some(record))
    }

    fn error(&self, kind: TemplateError) -> InputError {
        self.first.error(kind)
    }
}

impl Combined {
    /// Goes to the next combination, as a counter goes to the next number.
    fn advance(&mut self) {
        for (list, digit) in self.others.iter().zip(&mut self.digits).rev() {
            *digit += 1;
            if *digit < list.len() {
                return;
            }
            *digit = 0;
        }
        self.record = None;
    }
}

/// Lists that end with the shortest one.
struct SideBySide(Vec<Box<dyn ReadRecords + Send>>);

impl ReadRecords for SideBySide {
    fn read_record(&mut self) -> Result<Option<Record>, InputError> {
        let mut all: Option<Record> = None;
        for list in &mut self.0 {
            let Some(record) = list.read_record()? else { return Ok(None) };
            match &mut all {
                Some(all) => all.append(&record),
                None => all = Some(record),
            }
        }
        Ok(all)
    }
}

/// Lists that begin again until the longest one has ended.
struct Linked(Vec<Repeated>);

impl ReadRecords for Linked {
    fn read_record(&mut self) -> Result<Option<Record>, InputError> {
        let mut all: Option<Record> = None;
        for list in &mut self.0 {
            let Some(record) = list.next()? else { return Ok(None) };
            match &mut all {
                Some(all) => all.append(record),
                None => all = Some(record.clone()),
            }
        }
        Ok(all.filter(|_| self.0.iter().any(|list| !list.has_ended)))
    }
}

/// A list that begins again at its end.
struct Repeated {
    records: Box<dyn ReadRecords + Send>,
    read: Vec<Record>,
    next: usize,
    has_ended: bool,
}

impl Repeated {
    fn new(records: Box<dyn ReadRecords + Send>) -> Repeated {
        Repeated { records, read: Vec::new(), next: 0, has_ended: false }
    }

    /// Returns the next record. `None`: the list is empty.
    fn next(&mut self) -> Result<Option<&Record>, InputError> {
        if !self.has_ended {
            match self.records.read_record()? {
                Some(record) => self.read.push(record),
                None => self.has_ended = true,
            }
        }
        let at = if self.next < self.read.len() { self.next } else { 0 };
        self.next = at + 1;
        Ok(self.read.get(at))
    }
}
