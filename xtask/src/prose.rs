//! Sentences that native readers read twice.
//!
//! The forms are counted per 1,000 sentences, in the comments of `.rs` files and in the text of `.md` files. The counts
//! are a thermometer: no form is wrong in itself, and a page full of them is tiring.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;

use crate::workspace;

mod limits;
mod text;

use text::{Sentence, sentences};

/// Count sentence forms that are read twice, and compare with the limit of each part of the repository
#[derive(Args, Default)]
pub(crate) struct Prose {
    /// List each place
    #[arg(long, short)]
    list: bool,
    /// Count in these files and directories, without limits [default: every part of the repository]
    paths: Vec<PathBuf>,
}

impl Prose {
    /// Prints what was found; true if every part is within its limits.
    pub(crate) fn run(self) -> Result<bool> {
        if !self.paths.is_empty() {
            for path in &self.paths {
                let found = Found::below(path)?;
                println!("{}: {} sentences\n{found}", path.display(), found.sentences);
                if self.list {
                    found.places.iter().for_each(|place| println!("{place}"));
                }
            }
            return Ok(true);
        }
        let mut held = true;
        for part in parts()? {
            let found = Found::of_files(&part.files)?;
            if self.list {
                found.places.iter().for_each(|place| println!("{place}"));
            }
            for (form, limit) in Form::ALL.into_iter().zip(limits::of(&part.name)) {
                let rate = found.rate(form);
                if rate > limit {
                    println!(
                        "prose: {}: {form}: {rate:.1} per 1,000 sentences, at most {limit}; `cargo xtask prose -l {}` lists them",
                        part.name, part.name
                    );
                    held = false;
                }
            }
            println!("prose: {}: {}", part.name, found.line());
        }
        Ok(held)
    }
}

/// A form of sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    OpensWithWhat,
    ThatOf,
    OfWhich,
    Nobody,
    IsNone,
    Anew,
    Long,
}

impl Form {
    const ALL: [Self; 7] =
        [Self::OpensWithWhat, Self::ThatOf, Self::OfWhich, Self::Nobody, Self::IsNone, Self::Anew, Self::Long];

    /// Whether a sentence has it.
    fn is_in(self, sentence: &str) -> bool {
        let has = |phrase: &str| text::find(sentence, phrase).is_some();
        match self {
            Self::OpensWithWhat => opens_with_what(sentence),
            Self::ThatOf => has("that of") || has("those of"),
            Self::OfWhich => of_which(sentence),
            Self::Nobody => ["nobody", "somebody", "anybody", "everybody"].into_iter().any(has),
            Self::IsNone => ["is none", "are none"].into_iter().any(has),
            Self::Anew => ["anew", "to be had", "whoever"].into_iter().any(has),
            Self::Long => sentence.split_whitespace().count() > MAX_WORDS,
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OpensWithWhat => "opens with What, Who",
            Self::ThatOf => "that of, those of",
            Self::OfWhich => "of which … is",
            Self::Nobody => "nobody, somebody",
            Self::IsNone => "is none",
            Self::Anew => "anew, to be had, whoever",
            Self::Long => "over 40 words",
        })
    }
}

/// Words of a sentence that is not long.
const MAX_WORDS: usize = 40;

/// A clause as the subject: "What was read is kept". Questions and a few idioms are left out.
fn opens_with_what(sentence: &str) -> bool {
    let is_idiom = |rest: &str| {
        ["happens", "is new", "it does", "changed"].into_iter().any(|idiom| text::find(rest, idiom) == Some(1))
    };
    let opens = |word: &&str| text::find(sentence, word) == Some(0) && !is_idiom(&sentence[word.len()..]);
    !sentence.contains('?') && ["What", "Who", "Whoever", "Whatever"].iter().any(opens)
}

/// A relative clause behind a preposition, as in the tests.
fn of_which(sentence: &str) -> bool {
    ["of", "in", "by", "for", "to"].into_iter().any(|preposition| {
        ["which", "whom"].into_iter().any(|pronoun| {
            let phrase = format!("{preposition} {pronoun}");
            let behind = text::find(sentence, &phrase).map(|at| &sentence[at + phrase.len()..]);
            behind.is_some_and(|rest| {
                ["is", "are", "was", "were"].into_iter().any(|verb| text::find(rest, verb).is_some())
            })
        })
    })
}

/// A sentence with a form.
struct Place {
    form: Form,
    file: PathBuf,
    sentence: Sentence,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: String = self.sentence.text.chars().take(140).collect();
        write!(f, "{}:{}: {}: {shown}", self.file.display(), self.sentence.line, self.form)
    }
}

/// The sentences and forms of some files.
#[derive(Default)]
struct Found {
    sentences: usize,
    places: Vec<Place>,
}

impl Found {
    fn below(path: &Path) -> Result<Self> {
        let mut files = Vec::new();
        collect(path, &mut files)?;
        Self::of_files(&files)
    }

    fn of_files(files: &[PathBuf]) -> Result<Self> {
        let mut found = Self::default();
        for file in files {
            let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
            let shown = file.strip_prefix(workspace::root()).unwrap_or(file);
            for sentence in sentences(&text, file.extension().is_some_and(|extension| extension == "md")) {
                found.sentences += 1;
                let forms = Form::ALL.into_iter().filter(|form| form.is_in(&sentence.text));
                let place = |form| Place { form, file: shown.to_owned(), sentence: sentence.clone() };
                found.places.extend(forms.map(place));
            }
        }
        Ok(found)
    }

    fn count(&self, form: Form) -> usize {
        self.places.iter().filter(|place| place.form == form).count()
    }

    /// Per 1,000 sentences.
    fn rate(&self, form: Form) -> f64 {
        if self.sentences == 0 { 0.0 } else { 1000.0 * self.count(form) as f64 / self.sentences as f64 }
    }

    /// The rates in the order of the table of limits.
    fn line(&self) -> String {
        let rates: Vec<String> = Form::ALL.into_iter().map(|form| format!("{:.1}", self.rate(form))).collect();
        format!("{} per 1,000 of {} sentences", rates.join(", "), self.sentences)
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for form in Form::ALL {
            writeln!(f, "{:6.1} per 1,000  ({:5})  {form}", self.rate(form), self.count(form))?;
        }
        Ok(())
    }
}

/// A part of the repository that has limits: a crate, a directory of its own, or the pages beside them (`.`).
struct Part {
    name: String,
    files: Vec<PathBuf>,
}

fn parts() -> Result<Vec<Part>> {
    let root = workspace::root();
    let mut names: Vec<String> = ["xtask", "fuzz", "docs", "bench", "examples", "packaging"].map(str::to_owned).into();
    for entry in std::fs::read_dir(root.join("crates")).context("cannot read crates/")? {
        names.push(format!("crates/{}", entry?.file_name().display()));
    }
    names.sort();
    let mut parts = Vec::new();
    for name in names {
        let mut files = Vec::new();
        collect(&root.join(&name), &mut files)?;
        parts.push(Part { name, files });
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(root)? {
        let path = entry?.path();
        if path.is_file() {
            collect(&path, &mut files)?;
        }
    }
    files.sort();
    parts.push(Part { name: ".".to_owned(), files });
    Ok(parts)
}

/// Adds the files with sentences at and below a path. Directories of builds, of fuzzing and of other tools have none of ours.
fn collect(path: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if !path.is_dir() {
        if path.extension().is_some_and(|extension| extension == "rs" || extension == "md") {
            files.push(path.to_owned());
        }
        return Ok(());
    }
    let entries = std::fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut entries = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    entries.sort();
    for entry in entries {
        let name = entry.file_name().unwrap_or_default();
        if !["target", ".git", "node_modules", "corpus", "artifacts"].iter().any(|skipped| name == *skipped) {
            collect(&entry, files)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forms(sentence: &str) -> Vec<Form> {
        Form::ALL.into_iter().filter(|form| form.is_in(sentence)).collect()
    }

    #[test]
    fn each_form_is_found() {
        for (form, sentence) in [
            (Form::OpensWithWhat, "What was rewritten has files under other paths."),
            (Form::OpensWithWhat, "Whoever looks for it finds the fill."),
            (Form::ThatOf, "The page that of the protocol is short."),
            (Form::ThatOf, "Rights are (those of) the directory."),
            (Form::OfWhich, "Refuses a request, of which the head is known."),
            (Form::OfWhich, "The client for whom a slot was kept."),
            (Form::Nobody, "The file that nobody reads."),
            (Form::IsNone, "Its head is none of HTTP/1.1."),
            (Form::Anew, "It is read anew."),
            (Form::Anew, "There is nothing to be had."),
            (Form::Long, &"word ".repeat(41)),
        ] {
            assert_eq!(forms(sentence), [form], "{sentence}");
        }
    }

    #[test]
    fn plain_sentences_have_none() {
        for sentence in [
            "What happens then is written below.",
            "What does the server send?",
            "Whatsoever comes first.",
            "The response that offers a range.",
            "The kernel in which Rust is old.",
            "A body of nobodyness.",
            &"word ".repeat(40),
        ] {
            let expected: &[Form] = if sentence.starts_with("The kernel") { &[Form::OfWhich] } else { &[] };
            assert_eq!(forms(sentence), expected, "{sentence}");
        }
    }

    #[test]
    fn rates_are_per_thousand_sentences() {
        let place = |form| Place {
            form,
            file: "a.rs".into(),
            sentence: Sentence { line: 7, text: "The file that nobody reads.".to_owned() },
        };
        let found = Found { sentences: 400, places: vec![place(Form::Nobody), place(Form::Nobody)] };
        assert_eq!((found.rate(Form::Nobody), found.rate(Form::Long)), (5.0, 0.0));
        assert_eq!(Found::default().rate(Form::Long), 0.0);
        assert_eq!(found.places[0].to_string(), "a.rs:7: nobody, somebody: The file that nobody reads.");
    }

    #[test]
    fn every_part_with_limits_is_there() {
        let parts = parts().unwrap();
        for name in limits::names() {
            assert!(parts.iter().any(|part| part.name == name), "{name} has limits and no files");
        }
    }
}
