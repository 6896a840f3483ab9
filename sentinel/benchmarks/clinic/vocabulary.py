"""The closed vocabularies of the synthetic hospital: what can stand in a cell and in a question.

Names are few words, lower case. Codes are text: `0389` and `00845` keep their zeros. Nothing here
describes a real person; prices, ranges and habits are made up.
"""

from __future__ import annotations

# (icd9_code, short_title, long_title)
DIAGNOSES: tuple[tuple[str, str, str], ...] = (
    ("0389", "septicemia", "unspecified septicemia"),
    ("4019", "hypertension", "unspecified essential hypertension"),
    ("4280", "heart failure", "congestive heart failure, unspecified"),
    ("42731", "atrial fibrillation", "atrial fibrillation"),
    ("41401", "coronary disease", "coronary atherosclerosis of native vessel"),
    ("5849", "kidney failure", "acute kidney failure, unspecified"),
    ("25000", "type 2 diabetes", "diabetes mellitus type 2 without complication"),
    ("51881", "respiratory failure", "acute respiratory failure"),
    ("5990", "urinary infection", "urinary tract infection, site not specified"),
    ("2724", "hyperlipidemia", "other and unspecified hyperlipidemia"),
    ("486", "pneumonia", "pneumonia, organism unspecified"),
    ("2859", "anemia", "anemia, unspecified"),
    ("2449", "hypothyroidism", "unspecified acquired hypothyroidism"),
    ("496", "chronic airway disease", "chronic airway obstruction, not elsewhere classified"),
    ("53081", "esophageal reflux", "esophageal reflux"),
    ("41071", "heart attack", "subendocardial infarction, initial episode"),
    ("311", "depression", "depressive disorder, not elsewhere classified"),
    ("43491", "stroke", "cerebral artery occlusion with infarction"),
    ("5715", "liver cirrhosis", "cirrhosis of liver without alcohol"),
    ("5770", "pancreatitis", "acute pancreatitis"),
    ("2761", "low sodium", "hyposmolality or hyponatremia"),
    ("2767", "high potassium", "hyperpotassemia"),
    ("55090", "inguinal hernia", "unilateral inguinal hernia"),
    ("82021", "hip fracture", "fracture of intertrochanteric section of femur"),
    ("5712", "alcoholic cirrhosis", "alcoholic cirrhosis of liver"),
    ("00845", "clostridium colitis", "intestinal infection due to clostridium difficile"),
    ("34590", "epilepsy", "epilepsy, unspecified"),
    ("5559", "crohn's disease", "regional enteritis of unspecified site"),
    ("7802", "fainting", "syncope and collapse"),
    ("07054", "hepatitis c", "chronic hepatitis c without hepatic coma"),
)

# short_title of a diagnosis → its usual drugs, its usual procedures
USUAL: dict[str, tuple[str, str]] = {
    "septicemia": ("vancomycin,ceftriaxone", "central line"),
    "hypertension": ("metoprolol,lisinopril", ""),
    "heart failure": ("furosemide,lisinopril", "echocardiogram"),
    "atrial fibrillation": ("warfarin,metoprolol", "cardioversion"),
    "coronary disease": ("aspirin,atorvastatin", "coronary bypass,cardiac cath"),
    "kidney failure": ("furosemide,calcium gluconate", "hemodialysis"),
    "type 2 diabetes": ("insulin,metformin", ""),
    "respiratory failure": ("albuterol,propofol", "ventilation,intubation"),
    "urinary infection": ("ciprofloxacin,ceftriaxone", ""),
    "hyperlipidemia": ("atorvastatin", ""),
    "pneumonia": ("levofloxacin,vancomycin", "bronchoscopy,chest drainage"),
    "anemia": ("iron sulfate", "blood transfusion"),
    "hypothyroidism": ("levothyroxine", ""),
    "chronic airway disease": ("albuterol,prednisone", "ventilation"),
    "esophageal reflux": ("pantoprazole", "gastroscopy"),
    "heart attack": ("aspirin,heparin", "cardiac cath,coronary stent"),
    "depression": ("sertraline", ""),
    "stroke": ("aspirin,heparin", "head ct scan"),
    "liver cirrhosis": ("lactulose,furosemide", "paracentesis"),
    "pancreatitis": ("morphine,pantoprazole", "abdominal ultrasound"),
    "low sodium": ("sodium chloride", ""),
    "high potassium": ("calcium gluconate,insulin", ""),
    "inguinal hernia": ("morphine", "hernia repair"),
    "hip fracture": ("morphine,heparin", "hip replacement"),
    "alcoholic cirrhosis": ("lactulose,thiamine", "paracentesis"),
    "clostridium colitis": ("metronidazole", "colonoscopy"),
    "epilepsy": ("levetiracetam", "brain monitoring"),
    "crohn's disease": ("prednisone", "colonoscopy"),
    "fainting": ("sodium chloride", "head ct scan,echocardiogram"),
    "hepatitis c": ("lactulose", "liver biopsy"),
}

# (icd9_code, short_title, long_title)
PROCEDURES: tuple[tuple[str, str, str], ...] = (
    ("3893", "central line", "venous catheterization, not elsewhere classified"),
    ("9671", "ventilation", "continuous invasive mechanical ventilation"),
    ("9604", "intubation", "insertion of endotracheal tube"),
    ("3995", "hemodialysis", "hemodialysis"),
    ("9904", "blood transfusion", "transfusion of packed cells"),
    ("8872", "echocardiogram", "diagnostic ultrasound of heart"),
    ("3612", "coronary bypass", "aortocoronary bypass of two coronary arteries"),
    ("3722", "cardiac cath", "left heart cardiac catheterization"),
    ("0066", "coronary stent", "percutaneous transluminal coronary angioplasty"),
    ("4513", "gastroscopy", "other endoscopy of small intestine"),
    ("4523", "colonoscopy", "colonoscopy"),
    ("5491", "paracentesis", "percutaneous abdominal drainage"),
    ("3404", "chest drainage", "insertion of intercostal catheter for drainage"),
    ("3324", "bronchoscopy", "closed biopsy of bronchus"),
    ("8703", "head ct scan", "computerized axial tomography of head"),
    ("8876", "abdominal ultrasound", "diagnostic ultrasound of abdomen"),
    ("8151", "hip replacement", "total hip replacement"),
    ("5300", "hernia repair", "unilateral repair of inguinal hernia"),
    ("0331", "brain monitoring", "electroencephalographic monitoring"),
    ("9961", "cardioversion", "atrial cardioversion"),
    ("5011", "liver biopsy", "closed percutaneous biopsy of liver"),
)

# (itemid, label, unit, typical value, spread, decimals)
LABS: tuple[tuple[int, str, str, float, float, int], ...] = (
    (50868, "anion gap", "meq/l", 14.0, 4.0, 0),
    (50882, "bicarbonate", "meq/l", 25.0, 5.0, 0),
    (50893, "calcium", "mg/dl", 8.6, 0.9, 1),
    (50902, "chloride", "meq/l", 103.0, 6.0, 0),
    (50912, "creatinine", "mg/dl", 1.4, 0.9, 1),
    (50931, "glucose", "mg/dl", 138.0, 45.0, 0),
    (50960, "magnesium", "mg/dl", 2.0, 0.4, 1),
    (50970, "phosphate", "mg/dl", 3.5, 1.1, 1),
    (50971, "potassium", "meq/l", 4.2, 0.7, 1),
    (50983, "sodium", "meq/l", 138.0, 5.0, 0),
    (51006, "urea nitrogen", "mg/dl", 27.0, 15.0, 0),
    (51221, "hematocrit", "%", 31.0, 5.0, 1),
    (51222, "hemoglobin", "g/dl", 10.4, 1.9, 1),
    (51265, "platelet count", "k/ul", 215.0, 90.0, 0),
    (51301, "white blood cells", "k/ul", 10.5, 4.5, 1),
    (51279, "red blood cells", "m/ul", 3.5, 0.7, 2),
    (51237, "inr", "ratio", 1.5, 0.6, 1),
    (51275, "ptt", "sec", 38.0, 14.0, 1),
    (50813, "lactate", "mmol/l", 2.3, 1.3, 1),
    (50820, "ph", "units", 7.37, 0.08, 2),
    (50861, "alt", "iu/l", 45.0, 30.0, 0),
    (50878, "ast", "iu/l", 52.0, 34.0, 0),
    (50885, "bilirubin", "mg/dl", 1.5, 1.1, 1),
    (50862, "albumin", "g/dl", 3.1, 0.6, 1),
    (51003, "troponin", "ng/ml", 0.6, 0.5, 2),
)

# (itemid, label, unit, typical value, spread)
VITALS: tuple[tuple[int, str, str, float, float], ...] = (
    (220045, "heart rate", "bpm", 86.0, 16.0),
    (220210, "respiratory rate", "insp/min", 19.0, 5.0),
    (220050, "systolic pressure", "mmhg", 122.0, 20.0),
    (220051, "diastolic pressure", "mmhg", 62.0, 12.0),
    (220052, "mean pressure", "mmhg", 82.0, 13.0),
    (223762, "temperature", "c", 37.1, 0.7),
    (220277, "oxygen saturation", "%", 96.5, 2.2),
    (224639, "body weight", "kg", 81.0, 18.0),
)

# (itemid, label, typical amount in ml)
INPUTS: tuple[tuple[int, str, int], ...] = (
    (30018, "normal saline", 500),
    (30013, "dextrose water", 250),
    (30021, "lactated ringers", 600),
    (30056, "oral intake", 200),
    (30179, "packed cells", 350),
    (30058, "tube feeding", 120),
    (30008, "albumin drip", 100),
)
OUTPUTS: tuple[tuple[int, str, int], ...] = (
    (40055, "urine", 180),
    (40050, "gastric drainage", 90),
    (40052, "chest tube", 70),
    (40065, "emesis", 110),
    (40096, "stool", 150),
    (40064, "wound drain", 40),
)

# (drug, dose, unit, route, price)
DRUGS: tuple[tuple[str, str, str, str, float], ...] = (
    ("acetaminophen", "650", "mg", "po", 2.1),
    ("albuterol", "2.5", "mg", "ih", 6.4),
    ("aspirin", "81", "mg", "po", 1.3),
    ("atorvastatin", "40", "mg", "po", 4.2),
    ("calcium gluconate", "2", "g", "iv", 9.8),
    ("ceftriaxone", "1", "g", "iv", 15.5),
    ("ciprofloxacin", "400", "mg", "iv", 12.6),
    ("docusate", "100", "mg", "po", 1.1),
    ("furosemide", "40", "mg", "iv", 3.9),
    ("heparin", "5000", "unit", "sc", 7.3),
    ("insulin", "10", "unit", "sc", 8.8),
    ("iron sulfate", "325", "mg", "po", 2.4),
    ("lactulose", "30", "ml", "po", 5.1),
    ("levetiracetam", "500", "mg", "po", 7.9),
    ("levofloxacin", "750", "mg", "iv", 13.7),
    ("levothyroxine", "75", "mcg", "po", 3.3),
    ("lisinopril", "10", "mg", "po", 2.2),
    ("lorazepam", "1", "mg", "iv", 5.6),
    ("magnesium sulfate", "2", "g", "iv", 6.1),
    ("metformin", "500", "mg", "po", 1.9),
    ("metoprolol", "25", "mg", "po", 2.6),
    ("metronidazole", "500", "mg", "iv", 8.4),
    ("morphine", "4", "mg", "iv", 6.7),
    ("ondansetron", "4", "mg", "iv", 5.2),
    ("pantoprazole", "40", "mg", "iv", 4.8),
    ("potassium chloride", "40", "meq", "po", 3.1),
    ("prednisone", "20", "mg", "po", 2.9),
    ("propofol", "10", "mg", "iv", 18.2),
    ("senna", "2", "tab", "po", 1.2),
    ("sertraline", "50", "mg", "po", 3.6),
    ("sodium chloride", "1000", "ml", "iv", 4.4),
    ("thiamine", "100", "mg", "po", 2.0),
    ("vancomycin", "1", "g", "iv", 21.4),
    ("warfarin", "5", "mg", "po", 2.7),
)
COMMON_DRUGS = (
    "acetaminophen",
    "docusate",
    "senna",
    "heparin",
    "pantoprazole",
    "potassium chloride",
    "magnesium sulfate",
    "ondansetron",
    "lorazepam",
    "insulin",
)

SPECIMENS = (
    "blood",
    "urine",
    "sputum",
    "stool",
    "wound swab",
    "joint fluid",
    "spinal fluid",
    "pleural fluid",
    "catheter tip",
    "nasal swab",
)
ORGANISMS = (
    "escherichia coli",
    "staph aureus",
    "klebsiella",
    "enterococcus",
    "pseudomonas",
    "candida",
    "proteus",
    "streptococcus",
    "serratia",
    "enterobacter",
)

ADMISSION_TYPES = (("emergency", 0.6), ("elective", 0.25), ("urgent", 0.15))
ADMISSION_LOCATIONS = (
    ("emergency room", 0.5),
    ("physician referral", 0.25),
    ("hospital transfer", 0.15),
    ("clinic referral", 0.1),
)
DISCHARGE_LOCATIONS = (
    ("home", 0.5),
    ("nursing facility", 0.2),
    ("rehabilitation", 0.15),
    ("home health care", 0.15),
)
INSURANCES = (("medicare", 0.45), ("private", 0.3), ("medicaid", 0.15), ("government", 0.1))
LANGUAGES = (
    ("english", 0.7),
    ("spanish", 0.12),
    ("russian", 0.08),
    ("portuguese", 0.06),
    ("cantonese", 0.04),
)
MARITAL = (("married", 0.45), ("single", 0.25), ("widowed", 0.18), ("divorced", 0.12))
ETHNICITIES = (("white", 0.6), ("black", 0.16), ("hispanic", 0.12), ("asian", 0.12))
CARE_UNITS = (("micu", 0.35), ("sicu", 0.2), ("ccu", 0.2), ("csru", 0.13), ("tsicu", 0.12))
WARDS = {"micu": (50, 52), "sicu": (33, 33), "ccu": (7, 7), "csru": (14, 15), "tsicu": (12, 57)}
FLOOR_WARDS = (2, 3, 27, 29, 45)
